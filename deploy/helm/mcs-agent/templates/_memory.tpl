{{- /*
Mebibytes that a pod needs at most: the maps, which the kernel charges to the pod that makes them, and the process.

An entry of a hash map takes 48 bytes, its key and its value, each in words of 8 bytes, and up to two buckets of 16 bytes;
an entry of an array takes its value. By flag (mcs-agent/src/model/node.rs says how many entries there are of each):

  frontends  states 48, services 2 * 128, vips 72 + 32, frontends 80 + 32
  endpoints  backends 2 * 32, slots 4 * 8
  clusters   clusters 2 * 64
  flows      flows 2 * (176 + 32)

The maps of fixed size (affinity, what UDP sockets and fragments need) take 27 MiB. The process has 20 MiB, and 150 MiB
more with 16,384 frontends and 65,536 endpoints; loading the programs takes up to 40 MiB for an instant.
*/ -}}
{{- define "mcs-agent.memory" -}}
{{- $capacity := .Values.capacity -}}
{{- $maps := add (mul 520 $capacity.frontends) (mul 96 $capacity.endpoints) (mul 128 $capacity.clusters) (mul 416 $capacity.flows) -}}
{{- $objects := add (mul 6144 $capacity.frontends) (mul 1536 $capacity.endpoints) -}}
{{- add 27 64 (div (add $maps $objects 1048575) 1048576) -}}
{{- end }}

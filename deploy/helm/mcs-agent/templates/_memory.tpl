{{- /*
What a pod needs: the maps, which the kernel charges to the pod that makes them, and the process.

An entry of a hash map takes 48 bytes, its key and its value, each in words of 8 bytes, and up to two buckets of 16 bytes;
an entry of an array takes its value (mcs-agent/src/core/model/capacity.rs):

  frontend  states 48, services 2 * 128, vips 72 + 32, frontends 80 + 32
  endpoint  backends 32, slots 8; and the same for one that is spare: there are as many of these as endpoints, but no
            more than 65,536 or a 16th
  cluster   clusters 2 * 64
  flow      flows 2 * (176 + 32)

The maps of fixed size (affinity, what sockets and fragments need) take 44 MiB. The process has 20 MiB, 70 MiB more
with 10,000 frontends and 100,000 endpoints, and 940 MiB with 3,000,000 endpoints of 3,000 frontends while it starts.
*/ -}}

{{- /* As the agent shares it out: a 64th for clusters, three eighths for frontends, the rest for endpoints. Twice,
       since the former maps go when the programs have been switched to larger ones. */ -}}
{{- define "mcs-agent.memory.limit" -}}
{{- $text := .Values.capacity.memory -}}
{{- $unit := get (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) (regexFind "[KMG]i$" $text) | default 1 -}}
{{- $maps := mul (regexFind "^[0-9]+" $text | int64) $unit -}}
{{- $clusters := div $maps 64 -}}
{{- $frontends := mul 3 (div $maps 8) -}}
{{- $entries := div (sub (sub $maps $frontends) $clusters) 40 -}}
{{- $endpoints := div $entries 2 -}}
{{- if gt $entries 131072 -}}
{{- $endpoints = sub $entries 65536 -}}
{{- if gt (div $endpoints 16) 65536 }}{{ $endpoints = sub $entries (div $entries 17) }}{{ end -}}
{{- end -}}
{{- include "mcs-agent.memory.sum" (list . (mul 2 $maps) (div $frontends 520) $endpoints) -}}
{{- end }}

{{- /* With the first maps, full: 1,024 frontends, 4,096 endpoints, 64 clusters. No more than the limit. */ -}}
{{- define "mcs-agent.memory.request" -}}
{{- $first := include "mcs-agent.memory.sum" (list . (add (mul 520 1024) (mul 80 4096) (mul 128 64)) 1024 4096) -}}
{{- $limit := include "mcs-agent.memory.limit" . -}}
{{- printf "%dMi" (min (trimSuffix "Mi" $first) (trimSuffix "Mi" $limit)) -}}
{{- end }}

{{- /* Of the values, bytes of maps that grow, frontends and endpoints. */ -}}
{{- define "mcs-agent.memory.sum" -}}
{{- $maps := add (index . 1) (mul 416 (index . 0).Values.capacity.flows) -}}
{{- $objects := add (mul 6144 (index . 2)) (mul 384 (index . 3)) -}}
{{- add 35 64 (div (add $maps $objects 1048575) 1048576) }}Mi
{{- end }}

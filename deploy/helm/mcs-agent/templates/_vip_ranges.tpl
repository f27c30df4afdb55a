{{- /* The groups of an IP address, of 8 or 16 bits. */ -}}
{{- define "mcs-agent.groups" -}}
{{- $groups := list -}}
{{- if contains ":" . -}}
{{- $halves := splitList "::" . -}}
{{- $head := first $halves | splitList ":" | compact -}}
{{- $tail := list -}}
{{- if gt (len $halves) 1 -}}
{{- $tail = last $halves | splitList ":" | compact -}}
{{- end -}}
{{- range $head }}{{ $groups = append $groups (printf "0x%s" . | int64) }}{{ end -}}
{{- range until (add (len $head) (len $tail) | sub 8 | max 0 | int) }}{{ $groups = append $groups 0 }}{{ end -}}
{{- range $tail }}{{ $groups = append $groups (printf "0x%s" . | int64) }}{{ end -}}
{{- else -}}
{{- range splitList "." . }}{{ $groups = append $groups (atoi .) }}{{ end -}}
{{- end -}}
{{- join "," $groups -}}
{{- end }}

{{- /* Of a range and an IP address: "true" if the address is inside. */ -}}
{{- define "mcs-agent.isInside" -}}
{{- $range := splitList "/" (index . 0) -}}
{{- $network := include "mcs-agent.groups" (first $range) | splitList "," -}}
{{- $groups := include "mcs-agent.groups" (index . 1) | splitList "," -}}
{{- $width := eq (len $network) 4 | ternary 8 16 -}}
{{- $inside := eq (len $network) (len $groups) -}}
{{- if $inside -}}
{{- range $index, $group := $network -}}
{{- $free := sub (mul (add $index 1) $width) (last $range | atoi) | max 0 | min $width -}}
{{- $size := 1 -}}
{{- range until (int $free) }}{{ $size = mul $size 2 }}{{ end -}}
{{- if ne (div (int64 $group) $size) (div (index $groups $index | int64) $size) -}}
{{- $inside = false -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $inside }}true{{ end -}}
{{- end }}

{{- /* Of a list of ranges and an IP address: "true" if the agent accepts the address. */ -}}
{{- define "mcs-agent.accepts" -}}
{{- $accepts := index . 0 | empty -}}
{{- $ip := index . 1 -}}
{{- range index . 0 }}{{ if include "mcs-agent.isInside" (list . $ip) }}{{ $accepts = true }}{{ end }}{{ end -}}
{{- if $accepts }}true{{ end -}}
{{- end }}

{{- /* Fails if the agents of this release accept ClusterSetIPs now that they would reject with these values. */ -}}
{{- define "mcs-agent.keepsImports" -}}
{{- $now := list -}}
{{- $isRunning := false -}}
{{- $running := lookup "apps/v1" "DaemonSet" .Release.Namespace (include "mcs-agent.fullname" .) -}}
{{- range dig "spec" "template" "spec" "containers" list $running -}}
{{- if eq (first (.args | default list) | toString) "run" -}}
{{- $isRunning = true -}}
{{- range .args -}}
{{- if hasPrefix "--vip-cidr=" . }}{{ $now = append $now (trimPrefix "--vip-cidr=" .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $new := .Values.vipCidrs | default (.Values.global).vipCidrs | default list -}}
{{- $isNarrower := empty $now | and $new -}}
{{- range $now }}{{ if not (has . $new) }}{{ $isNarrower = true }}{{ end }}{{ end -}}
{{- $version := "" -}}
{{- range list "v1alpha1" "v1beta1" "v1" -}}
{{- /* A lookup of a type that the API server does not have is an error. */ -}}
{{- $candidate := printf "%s/%s" $.Values.import.group . -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/ServiceImport" $candidate) }}{{ $version = $candidate }}{{ end -}}
{{- end -}}
{{- if and $isRunning $new $isNarrower $version (not .Values.cleanup) (not .Values.allowVipRangeChange) -}}
{{- $lost := list -}}
{{- range (lookup $version "ServiceImport" "" "").items -}}
{{- $name := printf "%s/%s" .metadata.namespace .metadata.name -}}
{{- range dig "spec" "ips" list . -}}
{{- if and (include "mcs-agent.accepts" (list $now .)) (not (include "mcs-agent.accepts" (list $new .))) -}}
{{- $lost = append $lost (printf "%s (%s)" $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $lost -}}
{{- fail (printf "vipCidrs %s: the agents would serve %d ClusterSetIPs no more, such as %s. Keep the ranges that imports have addresses of, beside the new ones; a controller gives an import an address of the new ranges once its spec.ips is null. Set allowVipRangeChange=true if these imports may lose their addresses" (join "," $new) (len .) (slice . 0 (min 3 (len .)) | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end }}

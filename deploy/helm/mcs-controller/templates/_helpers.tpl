{{- define "mcs-controller.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "mcs-controller.selector" -}}
app.kubernetes.io/name: mcs-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcs-controller.labels" -}}
{{ include "mcs-controller.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* A tag or digest of this chart replaces both of `global`. */ -}}
{{- define "mcs-controller.image" -}}
{{- $global := (.Values.global).image | default dict -}}
{{- $repository := .Values.image.repository | default $global.repository | required "image.repository: say where the image is" -}}
{{- $version := or .Values.image.tag .Values.image.digest | empty | ternary $global .Values.image -}}
{{- if $version.digest -}}
{{ $repository }}@{{ $version.digest }}
{{- else -}}
{{ $repository }}:{{ $version.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "mcs-controller.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets | default (.Values.global).imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mcs-controller.clusterId" -}}
{{- .Values.clusterId | default ((.Values.global).clusterId | default "") -}}
{{- end }}

{{- define "mcs-controller.vipCidrs" -}}
{{- range .Values.vipCidrs | default (.Values.global).vipCidrs }}
- --vip-cidr={{ . }}
{{- end }}
{{- end }}

{{- define "mcs-controller.serviceCidrs" -}}
{{- range .Values.serviceCidrs | default (.Values.global).serviceCidrs }}
- --service-cidr={{ . }}
{{- end }}
{{- end }}

{{- define "mcs-controller.arguments" -}}
{{- with .Values.mailbox.secret }}
- --mailbox-secret={{ . }}
{{- end }}
{{- with include "mcs-controller.clusterId" . }}
- --cluster-id={{ . }}
{{- end }}
{{- with .Values.export.allow }}
- {{ printf "--export-namespaces=%s" (join "," .) | quote }}
{{- end }}
- {{ printf "--no-export-namespaces=%s" (join "," .Values.export.deny) | quote }}
- {{ printf "--namespace-services=%d" (int .Values.export.perNamespace.services) }}
- {{ printf "--namespace-bytes=%d" (int .Values.export.perNamespace.bytes) }}
{{- include "mcs-controller.vipCidrs" . }}
{{- include "mcs-controller.serviceCidrs" . }}
{{- range .Values.podCidrs }}
- --pod-cidr={{ . }}
{{- end }}
{{- if .Values.adopt }}
- --adopt
{{- end }}
{{- if .Values.createNamespaces }}
- --create-namespaces
{{- end }}
{{- if eq .Values.derivedServices "write" }}
- --derived-service
{{- end }}
{{- /* Where others write imports, agents are to serve their addresses too. */}}
{{- if .Values.admissionPolicy }}
- --tell-vip-ranges
{{- end }}
{{- if not .Values.probePeers }}
- --probe-peers=off
{{- end }}
- {{ printf "--health-address=%s" .Values.health.address | quote }}
- {{ printf "--metrics-address=%s" .Values.metrics.address | quote }}
{{- if .Values.page.enabled }}
- --page
{{- end }}
- --log-format={{ .Values.log.format }}
- --log={{ .Values.log.filter }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mcs-controller.port" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}

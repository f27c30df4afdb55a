{{- define "mcs-controller.selector" -}}
app.kubernetes.io/name: mcs-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcs-controller.labels" -}}
{{ include "mcs-controller.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "mcs-controller.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "mcs-controller.arguments" -}}
- --mailbox={{ .Values.mailbox.namespace }}
{{- with .Values.mailbox.secret }}
- --mailbox-secret={{ . }}
{{- end }}
{{- with .Values.clusterId }}
- --cluster-id={{ . }}
{{- end }}
{{- with .Values.export.allow }}
- {{ printf "--export-namespaces=%s" (join "," .) | quote }}
{{- end }}
- {{ printf "--no-export-namespaces=%s" (join "," .Values.export.deny) | quote }}
{{- range .Values.vipCidrs }}
- --vip-cidr={{ . }}
{{- end }}
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
- {{ printf "--health-address=%s" .Values.health.address | quote }}
- {{ printf "--metrics-address=%s" .Values.metrics.address | quote }}
- --log-format={{ .Values.log.format }}
- --log={{ .Values.log.filter }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mcs-controller.port" -}}
{{ regexFind "[0-9]+$" . }}
{{- end }}

{{- define "mcs-agent.selector" -}}
app.kubernetes.io/name: mcs-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcs-agent.labels" -}}
{{ include "mcs-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "mcs-agent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "mcs.labels" -}}
app.kubernetes.io/name: mcs
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

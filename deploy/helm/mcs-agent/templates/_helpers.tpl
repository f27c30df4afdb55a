{{- /* The name of the product in labels. */ -}}
{{- define "mcs-agent.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- /* The name of the release's objects. */ -}}
{{- define "mcs-agent.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $derived := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $derived | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "mcs-agent.serviceAccount" -}}
{{- $own := .Values.serviceAccount.create | ternary (include "mcs-agent.fullname" .) "default" -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end }}

{{- define "mcs-agent.selector" -}}
app.kubernetes.io/name: {{ include "mcs-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcs-agent.labels" -}}
{{ include "mcs-agent.selector" . }}
{{ include "mcs-agent.labels.common" . }}
{{- end }}

{{- define "mcs-agent.labels.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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

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

{{- /* A tag or digest of this chart replaces both of `global`. */ -}}
{{- define "mcs-agent.image" -}}
{{- $global := (.Values.global).image | default dict -}}
{{- $repository := .Values.image.repository | default $global.repository | required "image.repository: say where the image is" -}}
{{- $version := or .Values.image.tag .Values.image.digest | empty | ternary $global .Values.image -}}
{{- if $version.digest -}}
{{ $repository }}@{{ $version.digest }}
{{- else -}}
{{ $repository }}:{{ $version.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "mcs-agent.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets | default (.Values.global).imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mcs-agent.clusterId" -}}
{{- .Values.clusterId | default ((.Values.global).clusterId | default "") -}}
{{- end }}

{{- define "mcs-agent.serviceCidrs" -}}
{{- range .Values.serviceCidrs | default (.Values.global).serviceCidrs }}
- --service-cidr={{ . }}
{{- end }}
{{- end }}

{{- define "mcs-agent.vipCidrs" -}}
{{- range .Values.vipCidrs | default (.Values.global).vipCidrs }}
- --vip-cidr={{ . }}
{{- end }}
{{- end }}

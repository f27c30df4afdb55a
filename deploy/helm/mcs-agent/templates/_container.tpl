{{- define "mcs-agent.container" -}}
image: {{ include "mcs-agent.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# `kubectl describe pod`, `mcs up` and `mcs check` show why it has ended.
terminationMessagePolicy: FallbackToLogsOnError
env:
  - name: MCS_BPFFS
    value: /host/bpf
  {{- if not .Values.cleanup }}
  # glibc keeps more freed blocks for reuse: a tenth less CPU while objects change.
  - name: GLIBC_TUNABLES
    value: glibc.malloc.tcache_count=127
  - name: MCS_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  {{- with include "mcs-agent.apiserver" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
resources:
  requests:
    {{- $limits := .Values.resources.limits | default dict }}
    {{- $request := get $limits "memory" | default (include "mcs-agent.memory.request" .) }}
    {{- toYaml (merge (dict) (.Values.resources.requests | default dict) (dict "memory" $request)) | nindent 4 }}
  limits:
    {{- toYaml (merge (dict) $limits (dict "memory" (include "mcs-agent.memory.limit" .))) | nindent 4 }}
securityContext:
  # Root owns the files of the BPF file system.
  runAsUser: 0
  runAsGroup: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    add:
      # bpf(2), since Linux 5.8.
      - BPF
      # Programs for packets and addresses, and attaching them to devices and cgroups.
      - NET_ADMIN
      # Without it the verifier rejects data-dependent pointer arithmetic, and explores far more paths.
      - PERFMON
      {{- if and (or .Values.staleUdp.enabled .Values.staleTcp.enabled) (not .Values.cleanup) }}
      # Entering network namespaces, to destroy sockets of removed backends.
      - SYS_ADMIN
      {{- end }}
      {{- range .Values.extraCapabilities }}
      - {{ . }}
      {{- end }}
  seccompProfile:
    {{- toYaml .Values.seccompProfile | nindent 4 }}
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Not below /sys: the AppArmor profiles of container runtimes forbid writing there.
volumeMounts:
  - name: bpffs
    mountPath: /host/bpf
    # The node may mount it after the pod starts.
    mountPropagation: HostToContainer
  - name: cgroup
    mountPath: /host/cgroup
    readOnly: true
    # On a hybrid host each hierarchy is a mount of its own. It excludes mountPropagation; kubelets start after cgroups are mounted.
    recursiveReadOnly: IfPossible
  {{- if and (or .Values.staleUdp.enabled .Values.staleTcp.enabled) (not .Values.cleanup) }}
  - name: netns
    mountPath: /run/netns
    # Network namespaces of later pods appear here too.
    mountPropagation: HostToContainer
    readOnly: true
  {{- end }}
  - name: run
    mountPath: {{ .Values.host.runDirectory | default "/run/mcs-agent" }}
  {{- if not .Values.cleanup }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end }}

{{- define "mcs-agent.listening" -}}
{{- if ne .Values.health.address "off" -}}
# A slow node takes a while to load the programs.
startupProbe:
  {{- include "mcs-agent.get" (list . "/livez") | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- include "mcs-agent.get" (list . "/livez") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
# Ready when everything is read and attached: a version that cannot do that stops its own roll-out.
readinessProbe:
  {{- include "mcs-agent.get" (list . "/readyz") | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
{{- if not (regexMatch "^(off|127\\.|\\[::1\\]:)" .Values.metrics.address) }}
ports:
  - name: metrics
    containerPort: {{ regexFind "[0-9]+$" .Values.metrics.address }}
{{- end }}
{{- end }}

{{- /* Of the values and a path. Without a host the kubelet asks the address of the node. */ -}}
{{- define "mcs-agent.get" -}}
{{- $address := (index . 0).Values.health.address -}}
httpGet:
  path: {{ index . 1 }}
  port: {{ regexFind "[0-9]+$" $address }}
  {{- $host := regexReplaceAll "^\\[?(.*?)\\]?:[0-9]+$" $address "${1}" }}
  {{- if not (has $host (list "0.0.0.0" "::")) }}
  host: {{ $host | quote }}
  {{- end }}
{{- end }}

{{- define "mcs-agent.arguments" -}}
- --cgroup-root=/host/cgroup{{ with .Values.cgroup }}/{{ trimPrefix "/" . }}{{ end }}
- --run-dir={{ .Values.host.runDirectory | default "/run/mcs-agent" }}
- --import-group={{ .Values.import.group }}
{{- with .Values.import.selector }}
- {{ printf "--import-selector=%s" . | quote }}
{{- end }}
{{- with .Values.adopt }}
- --adopt={{ join "," . }}
{{- end }}
{{- with include "mcs-agent.clusterId" . }}
- --cluster-id={{ . }}
{{- end }}
{{- include "mcs-agent.vipCidrs" . }}
{{- include "mcs-agent.serviceCidrs" . }}
{{- range .Values.podCidrs }}
- --pod-cidr={{ . }}
{{- end }}
- --socket-lb={{ .Values.socketLb }}
- --tc={{ .Values.tc.mode }}
- --tc-attach={{ .Values.tc.attach }}
{{- with .Values.tc.devices }}
- {{ printf "--tc-devices=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.uplinks }}
- {{ printf "--uplinks=%s" (join "," .) | quote }}
{{- end }}
- --stale-udp={{ .Values.staleUdp.enabled | ternary "destroy" "leave" }}
- --stale-tcp={{ .Values.staleTcp.enabled | ternary "destroy" "leave" }}
{{- if not .Values.probePeers }}
- --probe-peers=off
{{- end }}
{{- if ne .Values.passiveHealth "annotated" }}
- --passive-health={{ .Values.passiveHealth }}
{{- end }}
{{- if eq .Values.orphan.policy "release" }}
- --orphan=release
- --orphan-after={{ int64 .Values.orphan.afterSeconds }}
{{- end }}
- {{ printf "--health-address=%s" .Values.health.address | quote }}
- {{ printf "--metrics-address=%s" .Values.metrics.address | quote }}
{{- if .Values.page.enabled }}
- --page
{{- end }}
{{- if ne (int64 .Values.metrics.imports) 500 }}
- --metrics-imports={{ int64 .Values.metrics.imports }}
{{- end }}
- --max-memory={{ .Values.capacity.memory }}
- --max-flows={{ int64 .Values.capacity.flows }}
- --min-sync-period={{ int64 .Values.minSyncPeriodMilliseconds }}
- --log-format={{ .Values.log.format }}
- --log={{ .Values.log.filter }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Where the API server is, unless the variables of the pod's own Services say so. */ -}}
{{- define "mcs-agent.apiserver" -}}
{{- with .Values.apiServer.host -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
{{- end }}
{{- with .Values.apiServer.port }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ . | quote }}
{{- end }}
{{- end }}

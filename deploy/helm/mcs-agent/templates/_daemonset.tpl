{{- define "mcs-agent.daemonset.spec" -}}
selector:
  matchLabels:
    {{- include "mcs-agent.selector" . | nindent 4 }}
{{- if and .Values.minReadySeconds (not .Values.cleanup) }}
minReadySeconds: {{ int64 .Values.minReadySeconds }}
{{- end }}
updateStrategy:
  {{- if .Values.cleanup }}
  # Cleaned nodes serve no VIP, so all can be cleaned at once.
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: 100%
    maxSurge: 0
  {{- else }}
  {{- toYaml .Values.updateStrategy | nindent 2 }}
  {{- end }}
template:
  metadata:
    labels:
      {{- include "mcs-agent.labels" . | nindent 6 }}
      {{- with .Values.podLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    annotations:
      {{- $default := dict "kubectl.kubernetes.io/default-container" "mcs-agent" }}
      {{- merge (deepCopy .Values.podAnnotations) $default | toYaml | nindent 6 }}
  spec:
    serviceAccountName: {{ include "mcs-agent.serviceAccount" . }}
    # Written in both modes: `helm rollback` of an uninstall leaves a field that no manifest of the release has as it is.
    automountServiceAccountToken: {{ not .Values.cleanup }}
    # The agent manages the node's devices and routes.
    hostNetwork: true
    # The node's resolver: the cluster's may need the agent.
    dnsPolicy: Default
    enableServiceLinks: false
    {{- with .Values.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
    {{- with include "mcs-agent.imagePullSecrets" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.affinity }}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    # Traffic continues without the agent.
    terminationGracePeriodSeconds: 10
    initContainers:
      - name: prepare
        {{- if .Values.cleanup }}
        args: [cleanup, --drain={{ int64 .Values.uninstall.drainSeconds }}]
        {{- else }}
        # Does nothing. An apply of this manifest replaces the cleanup, which it would keep under another name.
        args: [--version]
        {{- end }}
        {{- include "mcs-agent.container" . | nindent 8 }}
    containers:
      - name: mcs-agent
        {{- if .Values.cleanup }}
        # Starts when the node is clean, so the DaemonSet is ready when all nodes are clean.
        args: [cleanup, --wait]
        {{- else }}
        args:
          - run
          {{- include "mcs-agent.arguments" . | nindent 10 }}
        {{- end }}
        {{- include "mcs-agent.container" . | nindent 8 }}
        {{- if not .Values.cleanup }}
        {{- include "mcs-agent.listening" . | nindent 8 }}
        {{- end }}
    volumes:
      - name: bpffs
        hostPath:
          path: {{ .Values.host.bpffs }}
          type: Directory
      - name: cgroup
        hostPath:
          path: {{ .Values.host.cgroup }}
          type: Directory
      {{- if and (or .Values.staleUdp.enabled .Values.staleTcp.enabled) (not .Values.cleanup) }}
      - name: netns
        hostPath:
          path: {{ .Values.staleUdp.namespaces }}
          type: DirectoryOrCreate
      {{- end }}
      - name: run
        {{- if .Values.host.runDirectory }}
        hostPath:
          path: {{ .Values.host.runDirectory }}
          type: DirectoryOrCreate
        {{- else }}
        emptyDir:
          medium: Memory
          {{- /* The status file and the one that replaces it: 32 MiB each have room for 350,000 imports, or for 60,000
                 with the longest messages. */}}
          sizeLimit: 64Mi
        {{- end }}
      {{- if not .Values.cleanup }}
      {{- with .Values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- end }}
{{- end }}

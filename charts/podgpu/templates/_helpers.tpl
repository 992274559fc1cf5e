{{- define "podgpu.selector" -}}
app.kubernetes.io/name: podgpu
{{- end }}

{{- define "podgpu.labels" -}}
{{ include "podgpu.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "podgpu.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- .Values.image.repository }}{{ ternary "" ":" (hasPrefix "@" $tag) }}{{ $tag }}
{{- end }}

{{/* Whether the exporter asks the API server, and so has a role and a token. */}}
{{- define "podgpu.asksApi" -}}
{{- if ne .Values.podsSource "kubelet" }}yes{{ end }}
{{- end }}

{{/* Whether MPS servers live in the enforcer's container: nothing may end it by itself. */}}
{{- define "podgpu.managesMps" -}}
{{- if and .Values.enforcer.enabled (eq .Values.enforcer.mps "managed") }}yes{{ end }}
{{- end }}

{{/* A mount's volume: paths have slashes and dots, names of volumes have not. */}}
{{- define "podgpu.volume" -}}
host{{ . | replace "/" "-" | replace "." "-" | replace "_" "-" | lower | trunc 58 | trimSuffix "-" }}
{{- end }}

{{/* A probe of a path; by connection only where TLS or authentication is on. */}}
{{- define "podgpu.probe" -}}
{{- if .secret }}
tcpSocket:
  port: {{ .port }}
{{- else }}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
{{- end }}
{{- end }}

{{- define "podgpu.environment" -}}
- name: PODGPU_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility,compute
{{- if .Values.driverDirectory }}
- name: LD_LIBRARY_PATH
  value: /usr/local/nvidia/lib64
- name: PODGPU_MPS_CONTROL
  value: /usr/local/nvidia/bin/nvidia-cuda-mps-control
{{- end }}
{{- if ne .Values.kubeletDirectory "/var/lib/kubelet" }}
- name: PODGPU_KUBELET_SOCKET
  value: {{ .Values.kubeletDirectory }}/pod-resources/kubelet.sock
- name: PODGPU_KUBELET_PODS_SOCKET
  value: {{ .Values.kubeletDirectory }}/pods-api/pods-api.sock
{{- end }}
{{- if .Values.policy }}
- name: PODGPU_CAPS_POLICY_FILE
  value: /etc/podgpu/policy/policy.yaml
{{- end }}
{{- if .Values.webConfigSecret }}
- name: PODGPU_WEB_CONFIG_FILE
  value: /etc/podgpu/web/web.yaml
{{- end }}
{{- end }}

{{/* Mounts that both programs have. */}}
{{- define "podgpu.mounts" -}}
- name: pod-resources
  mountPath: {{ .Values.kubeletDirectory }}/pod-resources
  readOnly: true
- name: pods-api
  mountPath: {{ .Values.kubeletDirectory }}/pods-api
  readOnly: true
- name: log-links
  mountPath: /var/log/containers
  readOnly: true
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
{{- if .Values.driverDirectory }}
- name: driver
  mountPath: /usr/local/nvidia
  readOnly: true
{{- end }}
{{- if .Values.policy }}
- name: policy
  mountPath: /etc/podgpu/policy
  readOnly: true
{{- end }}
{{- if .Values.webConfigSecret }}
- name: web
  mountPath: /etc/podgpu/web
  readOnly: true
{{- end }}
{{- end }}

{{/* Mounts that the exporter has read-only and the enforcer writes to. */}}
{{- define "podgpu.pipes" -}}
{{- $writes := .writes }}
{{- range $name, $path := dict "mps-device-plugin" "/run/nvidia/mps" "mps-claims" (printf "%s/plugins/gpu.nvidia.com/mps" .root.Values.kubeletDirectory) "podgpu" "/run/podgpu" }}
- name: {{ $name }}
  mountPath: {{ $path }}
{{- if not $writes }}
  readOnly: true
{{- end }}
{{- end }}
{{- range .root.Values.mpsHostDirectories }}
- name: {{ include "podgpu.volume" . }}
  mountPath: {{ . }}
{{- if or (not $writes) (contains "gpu-fractioning" .) }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "podgpu.token" -}}
- name: api-access
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{/* Endpoints of a PodMonitor or ServiceMonitor. */}}
{{- define "podgpu.endpoints" -}}
{{- $monitor := .monitor }}
{{- range list (list "metrics" "podgpu") (list "enforcer" "podgpu-enforcer") }}
- port: {{ first . }}
  honorLabels: true
  interval: {{ $monitor.interval }}
  scrapeTimeout: {{ $monitor.scrapeTimeout }}
  {{- with $monitor.endpoint }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  relabelings:
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    - targetLabel: job
      replacement: {{ last . }}
{{- end }}
{{- end }}

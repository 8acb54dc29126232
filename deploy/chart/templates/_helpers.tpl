{{- /* The services: program, role, ServiceAccount, extra settings and ports. */}}
{{- define "sluice.services" -}}
discovery: {role: cluster, account: discovery-cluster, leads: true}
driver: {role: cluster, account: driver-cluster, leads: true}
scheduler: {role: scheduler, account: scheduler, leads: true}
validator: {role: cluster, account: validator-cluster, leads: false}
telemetry: {role: cluster, account: telemetry-cluster, leads: false}
signin: {role: server, account: sign-in, leads: false}
{{- end }}

{{- /* The label `app` of the agents' pods. */}}
{{- define "sluice.agents" -}}
["gpu-feature-discovery", "nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset", "nvidia-operator-validator", "nvidia-dcgm-exporter", "nvidia-dra-driver-kubelet-plugin"]
{{- end }}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Takes a dict of `root` and `component`. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "sluice.natsUrl" -}}
{{- if .Values.nats.enabled -}}
tls://sluice-nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ required "nats.enabled is false: nats.url must name the existing NATS" .Values.nats.url }}
{{- end -}}
{{- end }}

{{- /* The ConfigMap with the CA of NATS's certificate; empty where the CAs of the image are meant. */}}
{{- define "sluice.natsCa" -}}
{{- if and .Values.nats.enabled (not .Values.nats.certManager.enabled) -}}
sluice-nats-ca
{{- else -}}
{{ .Values.nats.caConfigMap }}
{{- end -}}
{{- end }}

{{- /* What a client of NATS mounts of the CA, as a source of a projected volume. */}}
{{- define "sluice.natsCaSource" -}}
{{- with include "sluice.natsCa" . }}
- configMap: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}

{{- define "sluice.natsSettings" -}}
- {name: SLUICE_NATS_URL, value: {{ include "sluice.natsUrl" . | quote }}}
{{- if include "sluice.natsCa" . }}
- {name: SLUICE_NATS_CA_FILE, value: /run/sluice/bus/ca.crt}
{{- end }}
{{- end }}

{{- /* The names in the certificate of NATS's servers, as those of the setup. */}}
{{- define "sluice.natsNames" -}}
{{- $namespace := .Release.Namespace -}}
- sluice-nats
- sluice-nats.{{ $namespace }}
- sluice-nats.{{ $namespace }}.svc
{{- range $index := until (int .Values.nats.replicas) }}
- sluice-nats-{{ $index }}.sluice-nats-servers.{{ $namespace }}.svc
{{- end }}
{{- end }}

{{- define "sluice.pullSecrets" -}}
{{- concat .Values.image.pullSecrets .Values.operator.imagePullSecrets | uniq | toJson -}}
{{- end }}

{{- /* What all pods have in common. Takes a dict of `root` and `component`; with `runsOnce`, of a Job
that needs seconds, the pod starts on a cordoned node too: a single node is cordoned while its
driver is upgraded. */}}
{{- define "sluice.pod" -}}
{{- $root := .root -}}
{{- $tolerations := $root.Values.operator.tolerations | default list -}}
{{- if .runsOnce -}}
{{- $cordon := dict "key" "node.kubernetes.io/unschedulable" "operator" "Exists" "effect" "NoSchedule" -}}
{{- $tolerations = append $tolerations $cordon -}}
{{- end -}}
priorityClassName: {{ $root.Values.operator.priorityClassName }}
enableServiceLinks: false
{{- with include "sluice.pullSecrets" $root | fromJsonArray }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sluice.selector" . | nindent 8 }}
{{- with $root.Values.operator.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy ($root.Values.operator.affinity | default dict) -}}
{{- /* Whoever is root on a node has what its pods have: the keys of sign-in, and the accounts of the
services. GPU nodes run the programs of tenants, so these pods prefer others. */}}
{{- if not $affinity.nodeAffinity -}}
{{- $preferred := list -}}
{{- range list "nvidia.com/gpu.present" "feature.node.kubernetes.io/pci-10de.present" -}}
{{- $expression := dict "key" . "operator" "NotIn" "values" (list "true") -}}
{{- $preferred = append $preferred (dict "weight" 100 "preference" (dict "matchExpressions" (list $expression))) -}}
{{- end -}}
{{- $_ := set $affinity "nodeAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) -}}
{{- end }}
affinity:
  {{- toYaml $affinity | nindent 2 }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* The values with the names that the ClusterPolicy has for them. */}}
{{- define "sluice.policyValues" -}}
{{- $values := deepCopy .Values -}}
{{- $driver := $values.driver -}}
{{- $upgrade := $driver.upgradePolicy | default dict -}}
{{- if hasKey $upgrade "gpuPodDeletion" -}}
{{- $_ := set $upgrade "podDeletion" $upgrade.gpuPodDeletion -}}
{{- $_ := unset $upgrade "gpuPodDeletion" -}}
{{- end -}}
{{- if hasKey $driver "nvidiaDriverCRD" -}}
{{- $_ := set $driver "useNvidiaDriverCRD" ($driver.nvidiaDriverCRD.enabled | default false) -}}
{{- $_ := unset $driver.nvidiaDriverCRD "enabled" -}}
{{- end -}}
{{- range $section := list "devicePlugin" "migManager" "dcgmExporter" -}}
{{- $config := (get $values $section | default dict).config | default dict -}}
{{- if kindIs "map" $config -}}
{{- $_ := unset $config "create" -}}
{{- $_ := unset $config "data" -}}
{{- end -}}
{{- end -}}
{{- $values | toJson -}}
{{- end }}

{{- /* The part of `value` that is in the tree `fields`, as JSON. */}}
{{- define "sluice.pick" -}}
{{- $out := dict -}}
{{- range $key, $value := .value -}}
{{- if and (hasKey $.fields $key) (not (kindIs "invalid" $value)) -}}
{{- $below := get $.fields $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $below) -}}
{{- $_ := set $out $key (include "sluice.pick" (dict "value" $value "fields" $below) | fromJson) -}}
{{- else -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $out | toJson -}}
{{- end }}

{{- /* The paths in `value` that are not in the tree `fields`, one a line, below `path`. */}}
{{- define "sluice.unknown" -}}
{{- range $key, $value := .value -}}
{{- $path := printf "%s%s" $.path $key -}}
{{- if not (hasKey $.fields $key) }}
{{ $path }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $.fields $key)) -}}
{{- include "sluice.unknown" (dict "value" $value "fields" (get $.fields $key) "path" (printf "%s." $path)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The paths of values without effect, one a line. */}}
{{- define "sluice.withoutEffect" -}}
{{- $fields := .Files.Get "files/cluster-policy-fields.json" | fromJson -}}
{{- range list "image" "nats" "signIn" "services" "admission" "networkPolicies" "monitoring" "web" "global" -}}
{{- $_ := set $fields . true -}}
{{- end -}}
{{- $_ := set $fields "clusterPolicy" (dict "deployCR" true) -}}
{{- $_ := set $fields "nfd" (dict "enabled" true) -}}
{{- range list "priorityClassName" "imagePullSecrets" "tolerations" "nodeSelector" "affinity" "cleanupCRD" -}}
{{- $_ := set $fields.operator . true -}}
{{- end -}}
{{- $_ := set $fields.operator "logging" (dict "level" true) -}}
{{- include "sluice.unknown" (dict "value" (include "sluice.policyValues" . | fromJson) "fields" $fields "path" "") -}}
{{- end }}

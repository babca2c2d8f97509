{{- define "headgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "headgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "headgate.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "headgate.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "headgate.claim" -}}
{{ .Values.persistence.existingClaim | default (include "headgate.name" .) }}
{{- end }}

{{/* The name of the pod's own address, where executors find the driver. */}}
{{- define "headgate.pod" -}}
{{ include "headgate.name" . }}-0.{{ include "headgate.name" . }}-node.{{ .Release.Namespace }}.svc
{{- end }}

{{/* A whole number as it was written: Helm reads numbers as floating point. */}}
{{- define "headgate.scalar" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- define "headgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headgate.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "headgate.password" -}}
{{- with .Values.database }}
{{- if .passwordSecret -}}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .passwordSecret }}, key: {{ .passwordKey }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Spark's settings for executors on Kubernetes, a line each. Nothing but pods is asked of Kubernetes. */}}
{{- define "headgate.spark" -}}
{{- $k := .Values.pipeline.kubernetes -}}
spark.driver.bindAddress=0.0.0.0
spark.driver.host={{ include "headgate.pod" . }}
spark.driver.port=7078
spark.blockManager.port=7079
spark.executor.cores={{ $k.cores }}
spark.executor.instances={{ $k.executors }}
spark.executor.memory={{ $k.memory }}
spark.executor.memoryOverhead={{ $k.overhead }}
spark.kubernetes.container.image={{ include "headgate.image" . }}
spark.kubernetes.container.image.pullPolicy={{ .Values.image.pullPolicy }}
spark.kubernetes.driver.ownPersistentVolumeClaim=false
spark.kubernetes.driver.pod.name={{ include "headgate.name" . }}-0
spark.kubernetes.driver.service.deleteOnTermination=false
spark.kubernetes.executor.disableConfigMap=true
spark.kubernetes.executor.podTemplateFile=/etc/headgate/executor.yaml
spark.kubernetes.namespace={{ .Release.Namespace }}
{{- range $name, $value := $k.settings }}
{{ $name }}={{ include "headgate.scalar" $value }}
{{- end }}
{{- end }}

{{/* What every container of the node is told: settings by variables, and the password of the database. */}}
{{- define "headgate.environment" -}}
- {name: HEADGATE_GATEWAY_HOST, value: 0.0.0.0}
- {name: HEADGATE_GATEWAY_PORT, value: "8443"}
- {name: HEADGATE_GATEWAY_COUNT, value: {{ include "headgate.scalar" .Values.gateways | quote }}}
- {name: HEADGATE_STORAGE_DATABASE, value: {{ .Values.database.address | quote }}}
- {name: HEADGATE_PIPELINE_CORES, value: {{ include "headgate.scalar" .Values.pipeline.cores | quote }}}
- {name: HEADGATE_PIPELINE_MEMORY, value: {{ .Values.pipeline.memory | quote }}}
{{- if .Values.pipeline.separate }}
- {name: HEADGATE_PIPELINE_RUN, value: "false"}
{{- end }}
{{- if .Values.pipeline.kubernetes.enabled }}
- {name: HEADGATE_PIPELINE_MASTER, value: "k8s://https://kubernetes.default.svc"}
- name: HEADGATE_PIPELINE_SPARK
  value: |-
    {{- include "headgate.spark" . | nindent 4 }}
{{- end }}
{{- range $section, $keys := .Values.settings }}
{{- range $key, $value := $keys }}
- {name: HEADGATE_{{ upper $section }}_{{ upper $key }}, value: {{ include "headgate.scalar" $value | quote }}}
{{- end }}
{{- end }}
{{- with include "headgate.password" . }}
{{ . }}
{{- end }}
{{- end }}

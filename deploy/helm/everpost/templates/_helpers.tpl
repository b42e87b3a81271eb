{{- define "everpost.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "everpost.selector" -}}
app.kubernetes.io/name: everpost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "everpost.labels" -}}
{{ include "everpost.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "everpost.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The roles that run: api and worker, or serve. */}}
{{- define "everpost.roles" -}}
{{- if eq .Values.mode "serve" }}serve{{ else }}api worker{{ end }}
{{- end }}

{{- define "everpost.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "everpost.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A variable whose value is in a Secret: list of name, reference. */}}
{{- define "everpost.secretVariable" -}}
{{- $reference := index . 1 -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ $reference.secret }}, key: {{ $reference.key }}}
{{- end }}

{{/* How to reach Temporal. */}}
{{- define "everpost.temporalEnv" -}}
{{- with .Values.temporal -}}
- {name: TEMPORAL_ADDRESS, value: {{ .address | quote }}}
- {name: TEMPORAL_NAMESPACE, value: {{ .namespace | quote }}}
- {name: TEMPORAL_TLS, value: {{ .tls.enabled | quote }}}
{{- if .tls.serverName }}
- {name: TEMPORAL_TLS_SERVER_NAME, value: {{ .tls.serverName | quote }}}
{{- end }}
{{- if .tls.ca.secret }}
- {name: TEMPORAL_TLS_SERVER_CA_CERT_PATH, value: /var/run/everpost/temporal-ca/{{ .tls.ca.key }}}
{{- end }}
{{- if .tls.client.secret }}
- {name: TEMPORAL_TLS_CLIENT_CERT_PATH, value: /var/run/everpost/temporal-client/{{ .tls.client.certKey }}}
- {name: TEMPORAL_TLS_CLIENT_KEY_PATH, value: /var/run/everpost/temporal-client/{{ .tls.client.keyKey }}}
{{- end }}
{{- if .apiKey.secret }}
- {name: TEMPORAL_API_KEY_FILE, value: /var/run/everpost/temporal-api-key/{{ .apiKey.key }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Secrets that are files: they change in a running pod, and Everpost reads them again. */}}
{{- define "everpost.temporalMounts" -}}
{{- with .Values.temporal -}}
{{- if .tls.ca.secret }}
- {name: temporal-ca, mountPath: /var/run/everpost/temporal-ca, readOnly: true}
{{- end }}
{{- if .tls.client.secret }}
- {name: temporal-client, mountPath: /var/run/everpost/temporal-client, readOnly: true}
{{- end }}
{{- if .apiKey.secret }}
- {name: temporal-api-key, mountPath: /var/run/everpost/temporal-api-key, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "everpost.temporalVolumes" -}}
{{- with .Values.temporal -}}
{{- if .tls.ca.secret }}
- {name: temporal-ca, secret: {secretName: {{ .tls.ca.secret }}, defaultMode: 0440}}
{{- end }}
{{- if .tls.client.secret }}
- {name: temporal-client, secret: {secretName: {{ .tls.client.secret }}, defaultMode: 0440}}
{{- end }}
{{- if .apiKey.secret }}
- {name: temporal-api-key, secret: {secretName: {{ .apiKey.secret }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end }}

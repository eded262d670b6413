{{- define "speechgate.podSettings" }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "speechgate.containerSettings" }}
image: {{ .Values.image }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "speechgate.service" }}
envFrom:
  - configMapRef:
      name: speechgate
  - secretRef:
      name: {{ .Values.secrets.service }}
volumeMounts:
  - name: keys
    mountPath: /etc/speechgate
    readOnly: true
{{- end }}

{{- define "speechgate.keys" }}
# SIGNING_KEYS_FILE can name keys.json in this folder.
volumes:
  - name: keys
    secret:
      secretName: {{ .Values.secrets.keys }}
      optional: true
{{- end }}

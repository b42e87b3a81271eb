package helm

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/everpost/everpost/internal/config"
)

// everything switches on all that can be.
const everything = `
image: {tag: v1.2.3}
keys: {operator: {secret: operator}, old: [{secret: kek-before, key: kek}, {secret: kek-first, key: k}]}
temporal: {namespace: hooks, tls: {serverName: temporal, ca: {secret: ca}, client: {secret: client}}, apiKey: {secret: api-key}}
settings: {EVERPOST_UI_URL: "https://temporal.example.com", EVERPOST_ENCRYPT_HISTORIES: "true", OTEL_EXPORTER_OTLP_ENDPOINT: "http://otel:4318"}
secretSettings: [{name: OTEL_EXPORTER_OTLP_HEADERS, secret: otel, key: headers}]
setupTemporal: {retention: 48h}
podAnnotations: {a: b}
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
priorityClassName: high
imagePullSecrets: [{name: registry}]
autoscaling: {api: {enabled: true}, worker: {enabled: true}}
networkPolicy:
  enabled: true
  api: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  admin: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  database: {peers: [{ipBlock: {cidr: 10.1.0.0/16}}]}
  temporal: {peers: [{podSelector: {matchLabels: {app: temporal}}}]}
  egress: [{ports: [{port: 4318}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true}
`

// pods are the pods that a rendering makes, by the object that makes them.
func pods(all objects) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for name, of := range all {
		switch of := of.(type) {
		case *appsv1.Deployment:
			found[name] = of.Spec.Template
		case *batchv1.Job:
			found[name] = of.Spec.Template
		}
	}
	return found
}

func names(all objects) []string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestObjects(t *testing.T) {
	t.Parallel()
	common := []string{"Job post-everpost-migrate", "Job post-everpost-setup-temporal", "Service post-everpost", "Service post-everpost-admin"}
	for _, test := range []struct {
		values string
		want   []string
	}{
		{"", []string{
			"Deployment post-everpost-api", "Deployment post-everpost-worker",
			"PodDisruptionBudget post-everpost-api", "PodDisruptionBudget post-everpost-worker",
		}},
		{"{mode: serve}", []string{"Deployment post-everpost-serve", "PodDisruptionBudget post-everpost-serve"}},
		{everything, []string{
			"Deployment post-everpost-api", "Deployment post-everpost-worker",
			"PodDisruptionBudget post-everpost-api", "PodDisruptionBudget post-everpost-worker",
			"HorizontalPodAutoscaler post-everpost-api", "HorizontalPodAutoscaler post-everpost-worker", "NetworkPolicy post-everpost",
			"PrometheusRule post-everpost", "ServiceMonitor post-everpost",
		}},
	} {
		require.ElementsMatch(t, append(test.want, common...), names(decoded(t, test.values)))
	}
}

// No process has more rights than it needs.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"", "{mode: serve}", everything} {
		all := pods(decoded(t, with))
		require.Greater(t, len(all), 2)
		for name, pod := range all {
			spec := pod.Spec
			require.False(t, *spec.AutomountServiceAccountToken, name)
			require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
			require.EqualValues(t, 10001, *spec.SecurityContext.RunAsUser, name)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
			require.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC, name)
			require.Len(t, spec.Containers, 1, name)
			c := spec.Containers[0]
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
			require.NotZero(t, c.Resources.Requests.Cpu().MilliValue(), name)
			require.NotZero(t, c.Resources.Limits.Memory().Value(), name)
			require.NotContains(t, c.Image, "latest", name)
			mounted := map[string]bool{}
			for _, v := range spec.Volumes {
				require.True(t, v.Secret != nil || v.EmptyDir != nil, "%s: volume %s", name, v.Name)
				mounted[v.Name] = true
			}
			for _, m := range c.VolumeMounts {
				require.True(t, mounted[m.Name], "%s: mount %s", name, m.Name)
				require.True(t, m.ReadOnly || m.Name == "tmp", "%s: mount %s", name, m.Name)
			}
			require.Len(t, c.VolumeMounts, len(spec.Volumes), name)
		}
	}
}

// A pod is asked whether it is ready, is not sent anything once it stops, and has as long for that as Everpost may take.
func TestProbesAndStopping(t *testing.T) {
	t.Parallel()
	documented := regexp.MustCompile("`terminationGracePeriodSeconds: (\\d+)`").FindStringSubmatch(read(t, "..", "..", "docs", "operations.md"))
	require.Equal(t, "45", documented[1])
	for name, of := range decoded(t, "") {
		d, ok := of.(*appsv1.Deployment)
		if !ok {
			continue
		}
		c, pod := d.Spec.Template.Spec.Containers[0], d.Spec.Template.Spec
		require.Equal(t, 45+c.Lifecycle.PreStop.Sleep.Seconds, *pod.TerminationGracePeriodSeconds, name)
		for _, probe := range []struct {
			of   *corev1.Probe
			path string
		}{{c.StartupProbe, "/healthz"}, {c.LivenessProbe, "/healthz"}, {c.ReadinessProbe, "/readyz"}} {
			require.Equal(t, probe.path, probe.of.HTTPGet.Path, name)
			require.Equal(t, "admin", probe.of.HTTPGet.Port.String(), name)
		}
		require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(), name)
		role := d.Spec.Selector.MatchLabels["app.kubernetes.io/component"]
		require.Equal(t, []string{role}, c.Args)
		budget := get[*policyv1.PodDisruptionBudget](t, decoded(t, ""), "PodDisruptionBudget post-everpost-"+role)
		require.True(t, selects(t, budget.Spec.Selector, d.Spec.Template.Labels))
		require.True(t, selects(t, d.Spec.Selector, d.Spec.Template.Labels))
	}
}

func selects(t *testing.T, s *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(of))
}

func environment(c corev1.Container) map[string]corev1.EnvVar {
	all := map[string]corev1.EnvVar{}
	for _, e := range c.Env {
		all[e.Name] = e
	}
	return all
}

// Each process gets its own login, and no secret stands in a manifest.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range config.Declared(config.Config{}, config.WebUI{}) {
		known[s.Variable] = true
	}
	for _, with := range []string{"", "{mode: serve}", everything} {
		all := pods(decoded(t, with))
		for name, pod := range all {
			c := pod.Spec.Containers[0]
			env := environment(c)
			require.Len(t, env, len(c.Env), "%s: each variable once", name)
			for variable := range env {
				require.True(t, known[variable] || strings.HasPrefix(variable, "TEMPORAL_") || strings.HasPrefix(variable, "OTEL_"), variable)
			}
			role := pod.Labels["app.kubernetes.io/component"]
			login, isSet := env["EVERPOST_DATABASE_URL"]
			require.Equal(t, role != "setup-temporal", isSet, name)
			if isSet {
				want := map[string]string{"api": "db-api", "worker": "db-worker", "serve": "db-worker", "migrate": "db-owner"}[role]
				require.Equal(t, want, login.ValueFrom.SecretKeyRef.Name, name)
				require.Equal(t, "url", login.ValueFrom.SecretKeyRef.Key, name)
			}
			_, operator := env["EVERPOST_OPERATOR_KEY"]
			require.Equal(t, with == everything && role == "api", operator, name)
			_, kek := env["EVERPOST_KEK_FILE"]
			require.Equal(t, role != "migrate" && role != "setup-temporal", kek, name)
			if role != "migrate" {
				require.Equal(t, "temporal.example.com:7233", env["TEMPORAL_ADDRESS"].Value, name)
				require.Equal(t, "true", env["TEMPORAL_TLS"].Value, name)
			}
		}
	}
	worker := get[*appsv1.Deployment](t, decoded(t, everything), "Deployment post-everpost-worker").Spec.Template.Spec
	env := environment(worker.Containers[0])
	require.Equal(t, "/var/run/everpost/kek/kek", env["EVERPOST_KEK_FILE"].Value)
	require.Equal(t, "/var/run/everpost/kek-old-0/kek,/var/run/everpost/kek-old-1/k", env["EVERPOST_KEK_OLD_FILES"].Value)
	require.Equal(t, "/var/run/everpost/temporal-client/tls.crt", env["TEMPORAL_TLS_CLIENT_CERT_PATH"].Value)
	require.Equal(t, "/var/run/everpost/temporal-api-key/api-key", env["TEMPORAL_API_KEY_FILE"].Value)
	require.Equal(t, "ghcr.io/everpost/everpost:v1.2.3", worker.Containers[0].Image)
	vault := `{keys: {kek: {secret: ""}}, settings: {EVERPOST_KEK_VAULT_ADDR: "https://vault:8200"}}`
	withVault := get[*appsv1.Deployment](t, decoded(t, vault), "Deployment post-everpost-api").Spec.Template.Spec.Containers[0]
	require.NotContains(t, environment(withVault), "EVERPOST_KEK_FILE")
	digest := "sha256:" + strings.Repeat("a", 64)
	require.Equal(t, "ghcr.io/everpost/everpost@"+digest,
		get[*appsv1.Deployment](t, decoded(t, "image: {digest: "+digest+"}"), "Deployment post-everpost-api").Spec.Template.Spec.Containers[0].Image)
}

// The jobs run before what needs them, the migration first.
func TestHooks(t *testing.T) {
	t.Parallel()
	all := decoded(t, everything)
	for name, weight := range map[string]string{"migrate": "0", "setup-temporal": "1"} {
		job := get[*batchv1.Job](t, all, "Job post-everpost-"+name)
		require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
		require.Equal(t, weight, job.Annotations["helm.sh/hook-weight"])
		require.Equal(t, corev1.RestartPolicyNever, job.Spec.Template.Spec.RestartPolicy)
		require.Equal(t, name, job.Spec.Template.Spec.Containers[0].Args[0])
	}
	setup := get[*batchv1.Job](t, all, "Job post-everpost-setup-temporal")
	require.Equal(t, []string{"setup-temporal", "--retention=48h"}, setup.Spec.Template.Spec.Containers[0].Args)
	current := get[*batchv1.Job](t, decoded(t, `settings: {EVERPOST_WORKER_VERSIONING: "true"}`), "Job post-everpost-make-current")
	require.Equal(t, "post-install,post-upgrade", current.Annotations["helm.sh/hook"])
	require.Equal(t, []string{"setup-temporal", "--make-current", "--wait=10m"}, current.Spec.Template.Spec.Containers[0].Args)
	require.NotContains(t, all, "Job post-everpost-make-current")
	require.NotContains(t, decoded(t, "setupTemporal: {enabled: false}"), "Job post-everpost-setup-temporal")
	require.NotContains(t, decoded(t, "{migrate: {enabled: false}, database: {migrate: {secret: \"\"}}}"), "Job post-everpost-migrate")
}

func TestServices(t *testing.T) {
	t.Parallel()
	for with, role := range map[string]string{"": "api", "{mode: serve}": "serve"} {
		all := decoded(t, with)
		for name, pod := range pods(all) {
			for service, want := range map[string]bool{
				"post-everpost": strings.HasSuffix(name, "-"+role), "post-everpost-admin": strings.HasPrefix(name, "Deployment "),
			} {
				s := get[*corev1.Service](t, all, "Service "+service)
				require.Equal(t, want, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)), "%s %s", service, name)
				if want {
					target := s.Spec.Ports[0].TargetPort.StrVal
					require.True(t, slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == target }))
				}
			}
		}
	}
	monitor := get[*serviceMonitor](t, decoded(t, everything), "ServiceMonitor post-everpost")
	require.True(t, selects(t, &monitor.Spec.Selector, get[*corev1.Service](t, decoded(t, ""), "Service post-everpost-admin").Labels))
	require.False(t, selects(t, &monitor.Spec.Selector, get[*corev1.Service](t, decoded(t, ""), "Service post-everpost").Labels))
	require.Equal(t, "everpost", monitor.Spec.Endpoints[0].Relabelings[0]["replacement"], "the rules and the dashboard say job=everpost")
	require.Equal(t, "prometheus", monitor.Labels["release"])
}

// The rules are those of deploy/monitoring.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	var want struct {
		Groups []map[string]any `json:"groups"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "..", "monitoring", "rules.yaml")), &want))
	got := get[*prometheusRule](t, decoded(t, everything), "PrometheusRule post-everpost").Spec.Groups
	require.Len(t, got, len(want.Groups))
	for i, group := range got {
		require.Equal(t, want.Groups[i]["name"], group.Name)
		require.Len(t, group.Rules, len(want.Groups[i]["rules"].([]any)))
		for j, rule := range group.Rules {
			require.Equal(t, want.Groups[i]["rules"].([]any)[j], any(rule))
		}
	}
}

func TestAutoscaling(t *testing.T) {
	t.Parallel()
	all := decoded(t, everything)
	for role, metrics := range map[string][]string{"api": {"everpost_starts_waiting"}, "worker": {"everpost_attempts_running", "everpost_outbox_deliveries"}} {
		require.Nil(t, get[*appsv1.Deployment](t, all, "Deployment post-everpost-"+role).Spec.Replicas, "the autoscaler decides")
		scaler := get[*autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler post-everpost-"+role)
		require.Equal(t, "post-everpost-"+role, scaler.Spec.ScaleTargetRef.Name)
		var found []string
		for _, m := range scaler.Spec.Metrics {
			if m.Pods != nil {
				found = append(found, m.Pods.Metric.Name)
			}
			if m.External != nil {
				found = append(found, m.External.Metric.Name)
			}
		}
		require.Equal(t, metrics, found)
		for _, metric := range metrics {
			require.Contains(t, read(t, "..", "..", "docs", "monitoring.md"), "`"+metric+"`")
		}
	}
	require.EqualValues(t, 2, *get[*appsv1.Deployment](t, decoded(t, ""), "Deployment post-everpost-api").Spec.Replicas)
}

func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	all := decoded(t, everything)
	policy := get[*networkingv1.NetworkPolicy](t, all, "NetworkPolicy post-everpost").Spec
	for name, pod := range pods(all) {
		require.True(t, selects(t, &policy.PodSelector, pod.Labels), "%s, the jobs of an upgrade included", name)
	}
	require.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.PolicyTypes)
	require.Len(t, policy.Ingress, 3)
	lanes := policy.Ingress[2]
	require.Equal(t, "lanes", lanes.Ports[0].Port.String())
	require.Len(t, lanes.From, 1)
	require.Equal(t, policy.PodSelector, *lanes.From[0].PodSelector, "only the other processes")
	require.Equal(t, lanes.From, policy.Egress[0].To)
	open := 0
	for _, rule := range policy.Egress {
		require.NotEmpty(t, rule.Ports)
		for _, peer := range rule.To {
			if peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" {
				open++
				require.Contains(t, peer.IPBlock.Except, "169.254.0.0/16")
				require.Contains(t, peer.IPBlock.Except, "10.0.0.0/8")
				require.Equal(t, 443, rule.Ports[0].Port.IntValue())
			}
		}
	}
	require.Equal(t, 1, open)
	closed := decoded(t, strings.Replace(strings.Replace(everything, "  api: [{namespace", "  api: [] #", 1), "  admin: [{namespace", "  admin: [] #", 1))
	require.Equal(t, []networkingv1.NetworkPolicyIngressRule{lanes}, get[*networkingv1.NetworkPolicy](t, closed, "NetworkPolicy post-everpost").Spec.Ingress,
		"no other pod")
}

func TestValuesAreChecked(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		`{mode: both}`:                                             "/mode",
		`{replicas: 3}`:                                            "replicas",
		`{api: {replicas: "2"}}`:                                   "/api/replicas",
		`{database: {api: {secret: ""}}}`:                          "/database/api/secret",
		`{database: {worker: {secret: ""}}}`:                       "/database/worker/secret",
		`{database: {migrate: {secret: ""}}}`:                      "/database/migrate/secret",
		`{database: {api: {url: "postgres://x"}}}`:                 "/database/api",
		`{temporal: {address: ""}}`:                                "/temporal/address",
		`{temporal: {address: "no-port"}}`:                         "/temporal/address",
		`{temporal: {tls: {enabled: false, serverName: x}}}`:       "/temporal/tls/serverName",
		`{keys: {kek: {secret: ""}}}`:                              "/keys/kek/secret",
		`{image: {tag: latest}}`:                                   "/image/tag",
		`{image: {digest: "sha256:1"}}`:                            "/image/digest",
		`{settings: {EVERPOST_OPERATOR_KEY: canary}}`:              "invalid propertyName",
		`{settings: {EVERPOST_KEK: canary}}`:                       "invalid propertyName",
		`{settings: {EVERPOST_DATABASE_URL: canary}}`:              "invalid propertyName",
		`{settings: {OTEL_EXPORTER_OTLP_HEADERS: canary}}`:         "invalid propertyName",
		`{settings: {EVERPOST_LISTEN: "0.0.0.0:80"}}`:              "invalid propertyName",
		`{settings: {EVERPOST_QUEUE_LENGTH: 1000}}`:                "/settings/EVERPOST_QUEUE_LENGTH",
		`{networkPolicy: {enabled: true}}`:                         "/networkPolicy/database/peers",
		`{autoscaling: {worker: {enabled: true, maxReplicas: 0}}}`: "/autoscaling/worker/maxReplicas",
		`{podDisruptionBudget: {maxUnavailable: 0}}`:               "/podDisruptionBudget/maxUnavailable",
		`{setupTemporal: {retention: "1 day"}}`:                    "/setupTemporal/retention",
	} {
		_, err := render(t, values)
		require.ErrorContains(t, err, want, values)
	}
}

package helm

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm says that a link was followed
	m.Run()
}

type values = map[string]any

// least is what an installation has to say.
const least = `
database: {migrate: {secret: db-owner}, api: {secret: db-api}, worker: {secret: db-worker}}
keys: {kek: {secret: kek}}
temporal: {address: "temporal.example.com:7233"}
`

// render renders the chart with the least values and others on top, as YAML.
func render(t *testing.T, more string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.LoadDir("everpost")
	require.NoError(t, err)
	given := values{}
	for _, text := range []string{least, more} {
		var layer values
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &layer))
		merge(given, layer)
	}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "post", Namespace: "hooks", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, all)
}

// merge lays maps over maps, as Helm does with files of values.
func merge(into, from values) {
	for name, value := range from {
		over, isMap := value.(values)
		under, wasMap := into[name].(values)
		if isMap && wasMap {
			merge(under, over)
			continue
		}
		into[name] = value
	}
}

// objects are what a rendering consists of, by kind and name.
type objects map[string]any

// serviceMonitor and prometheusRule are as much of the operator's types as the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port        string              `json:"port"`
			Interval    string              `json:"interval"`
			Relabelings []map[string]string `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// decoded renders the chart and decodes each document strictly, by its kind.
func decoded(t *testing.T, more string) objects {
	t.Helper()
	files, err := render(t, more)
	require.NoError(t, err)
	all := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(files[name])))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if strings.TrimSpace(withoutComments(string(document))) == "" {
				continue
			}
			var head metav1.PartialObjectMetadata
			require.NoError(t, yaml.Unmarshal(document, &head), "%s:\n%s", name, document)
			of := map[string]any{
				"apps/v1 Deployment": &appsv1.Deployment{}, "batch/v1 Job": &batchv1.Job{}, "v1 Service": &corev1.Service{},
				"policy/v1 PodDisruptionBudget":           &policyv1.PodDisruptionBudget{},
				"autoscaling/v2 HorizontalPodAutoscaler":  &autoscalingv2.HorizontalPodAutoscaler{},
				"networking.k8s.io/v1 NetworkPolicy":      &networkingv1.NetworkPolicy{},
				"monitoring.coreos.com/v1 ServiceMonitor": &serviceMonitor{},
				"monitoring.coreos.com/v1 PrometheusRule": &prometheusRule{},
			}[head.APIVersion+" "+head.Kind]
			require.NotNil(t, of, "%s %s", head.APIVersion, head.Kind)
			require.NoError(t, yaml.UnmarshalStrict(document, of), "%s:\n%s", name, document)
			key := head.Kind + " " + head.Name
			require.NotContains(t, all, key)
			require.LessOrEqual(t, len(head.Name), 63)
			all[key] = of
		}
	}
	return all
}

func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.TrimSpace(line) != "---" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// get returns an object of the kind that the caller expects.
func get[T any](t *testing.T, all objects, name string) T {
	t.Helper()
	require.Contains(t, all, name)
	of, ok := all[name].(T)
	require.True(t, ok, name)
	return of
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(content)
}

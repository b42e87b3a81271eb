// Package deploy holds what runs Everpost elsewhere than on a developer's machine. Its tests read docker-compose.yml,
// the Dockerfile and what they mount, and refuse what would only fail on a server.
package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/everpost/everpost/internal/config"
)

const root = ".."

type composeFile struct {
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Image       string             `yaml:"image"`
	Build       *build             `yaml:"build"`
	Command     []string           `yaml:"command"`
	Entrypoint  []string           `yaml:"entrypoint"`
	Restart     string             `yaml:"restart"`
	Environment map[string]*string `yaml:"environment"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck *struct {
		Test    []string `yaml:"test"`
		Disable bool     `yaml:"disable"`
	} `yaml:"healthcheck"`
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	StopGracePeriod string   `yaml:"stop_grace_period"`

	Ports   []string `yaml:"ports"`
	Volumes []string `yaml:"volumes"`
}

type build struct {
	Context string `yaml:"context"`
	Target  string `yaml:"target"`
}

func (s service) healthChecked() bool {
	return s.Healthcheck != nil && !s.Healthcheck.Disable && len(s.Healthcheck.Test) > 1
}

// commands are the long-running and one-off commands of the everpost binary that an installation runs.
func commands() []string {
	return []string{"standalone", "serve", "api", "worker", "migrate", "setup-temporal", "doctor", "keys", "version"}
}

// settings are the environment variables that the everpost binary reads.
func settings() []string {
	var names []string
	for _, s := range config.Declared(config.Config{}, config.WebUI{}, config.Standalone{}) {
		names = append(names, s.Variable)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(content)
}

func compose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file))
	require.NotEmpty(t, file.Services)
	return file
}

// pinned is an image with a version of at least two numbers or a date in its tag: not latest, not a major version that moves.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:(v?\d+\.\d+[.\w-]*|[a-z]+-\d{8}[\w-]*)(@sha256:[0-9a-f]{64})?$`)

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t).Services {
		if s.Build != nil {
			continue // made here
		}
		require.Regexp(t, pinned, s.Image, name)
		// The digests of Temporal's images are not known to us yet.
		require.Equal(t, !strings.HasPrefix(s.Image, "temporalio/"), strings.Contains(s.Image, "@sha256:"), name)
	}
	for _, image := range []string{"postgres", "postgres:17", "postgres:latest", "debian:bookworm-slim", "temporalio/ui:v2"} {
		require.NotRegexp(t, pinned, image)
	}
}

func TestTemporalImagesAgree(t *testing.T) {
	t.Parallel()
	versions := map[string]bool{}
	for _, s := range compose(t).Services {
		image, version, _ := strings.Cut(s.Image, ":")
		if image == "temporalio/server" || image == "temporalio/admin-tools" {
			versions[version] = true
		}
	}
	require.Len(t, versions, 1, "the schema tools must be the server's version")
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	for name, s := range services {
		for target, dependency := range s.DependsOn {
			message := fmt.Sprintf("%s depends on %s", name, target)
			require.Contains(t, services, target, message)
			switch dependency.Condition {
			case "service_healthy":
				require.True(t, services[target].healthChecked(), "%s, which has no health check", message)
				require.NotEqual(t, "no", services[target].Restart, "%s, which is a job", message)
			case "service_completed_successfully":
				require.Equal(t, "no", services[target].Restart, "%s, which never completes", message)
				require.False(t, services[target].healthChecked(), "%s, a job with a health check", message)
			default:
				require.Fail(t, "unknown condition", "%s: %q", message, dependency.Condition)
			}
		}
		require.Contains(t, []string{"no", "unless-stopped"}, s.Restart, "%s says whether it is a job or a server", name)
	}
}

// reach is everything that has to be up or done before a service starts.
func reach(services map[string]service, name string, seen map[string]bool) {
	for target := range services[name].DependsOn {
		if !seen[target] {
			seen[target] = true
			reach(services, target, seen)
		}
	}
}

func TestStartOrder(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	for name := range services {
		seen := map[string]bool{}
		reach(services, name, seen)
		require.NotContains(t, seen, name, "a circle")
	}
	for _, name := range []string{"api", "worker"} {
		seen := map[string]bool{}
		reach(services, name, seen)
		for _, before := range []string{"postgresql", "migrate", "temporal-schema", "temporal", "setup-temporal"} {
			require.Contains(t, seen, before, name)
		}
	}
}

func TestPortsAreBoundToLoopback(t *testing.T) {
	t.Parallel()
	published := map[string]string{}
	for name, s := range compose(t).Services {
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port, name)
			host, _, _ := strings.Cut(strings.TrimPrefix(port, "127.0.0.1:"), ":")
			require.NotContains(t, published, host, "published by %s and %s", name, published[host])
			published[host] = name
		}
	}
	require.Equal(t, map[string]string{"8080": "api", "8081": "api", "7233": "temporal", "8233": "temporal-ui"}, published)
}

func TestCommandsExist(t *testing.T) {
	t.Parallel()
	var used []string
	for name, s := range compose(t).Services {
		if s.Build == nil {
			continue
		}
		require.Len(t, s.Command, 1, name)
		require.Empty(t, s.Entrypoint, name)
		require.Contains(t, commands(), s.Command[0], name)
		used = append(used, s.Command[0])
	}
	require.ElementsMatch(t, []string{"migrate", "setup-temporal", "api", "worker"}, used)

	defaults := regexp.MustCompile(`(?m)^CMD \["([a-z]+)"\]$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	require.Len(t, defaults, 2)
	for _, match := range defaults {
		require.Contains(t, commands(), match[1])
	}
}

func TestSettingsExist(t *testing.T) {
	t.Parallel()
	variable := regexp.MustCompile(`\bEVERPOST_[A-Z_]+\b`)
	for _, name := range []string{"docker-compose.yml", "Dockerfile", "deploy/new-env", "deploy/README.md"} {
		for _, used := range variable.FindAllString(read(t, name), -1) {
			require.Contains(t, settings(), used, name)
		}
	}
}

func TestOurServicesAreConfigured(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	for _, name := range []string{"api", "worker"} {
		for _, variable := range []string{"EVERPOST_DATABASE_URL", "EVERPOST_KEK", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_TLS"} {
			require.Contains(t, services[name].Environment, variable, name)
		}
		require.True(t, services[name].healthChecked(), name)
	}
	require.Equal(t, services["setup-temporal"].Environment["TEMPORAL_NAMESPACE"], services["worker"].Environment["TEMPORAL_NAMESPACE"])
	require.Contains(t, services["api"].Environment, "EVERPOST_OPERATOR_KEY")
	require.NotContains(t, services["worker"].Environment, "EVERPOST_OPERATOR_KEY", "a process that does not serve the API needs no key of it")
	require.NotContains(t, services["migrate"].Environment, "EVERPOST_KEK", "migrations open no secrets")
	for _, name := range []string{"api", "worker"} {
		var allowed config.Hosts
		require.NoError(t, allowed.UnmarshalText([]byte(*services[name].Environment["EVERPOST_ADMIN_HOSTS"])))
		require.Contains(t, allowed.Names, name, "others ask it by the name of its service")
	}
	for _, name := range []string{"migrate", "api", "worker"} {
		require.Contains(t, *services[name].Environment["EVERPOST_DATABASE_URL"], "sslmode=", "TLS, or a word that there is none")
	}
	for name, login := range map[string]string{"migrate": "everpost", "api": "everpost_api_login", "worker": "everpost_worker_login"} {
		require.Contains(t, *services[name].Environment["EVERPOST_DATABASE_URL"], "//"+login+":", name)
	}
}

// A secret is a variable without a default that .env has to give; the file itself has no secret.
func TestNoDefaultPasswords(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(PASSWORD|PWD|SECRET|TOKEN|KEK|_KEY)$`)
	required := regexp.MustCompile(`^\$\{[A-Z_]+:\?[^}]+\}$`)
	for name, s := range compose(t).Services {
		for variable, value := range s.Environment {
			if secret.MatchString(variable) {
				require.NotNil(t, value, "%s %s", name, variable)
				require.Regexp(t, required, *value, "%s %s", name, variable)
			}
			if value != nil && strings.Contains(*value, "://") && variable != "EVERPOST_UI_URL" {
				require.Regexp(t, `^postgres://everpost(_api_login|_worker_login)?:\$\{[A-Z_]+:\?[^}]+\}@`, *value, "%s %s", name, variable)
			}
		}
	}
}

func TestMountsExist(t *testing.T) {
	t.Parallel()
	file := compose(t)
	for name, s := range file.Services {
		for _, mount := range s.Volumes {
			parts := strings.Split(mount, ":")
			if !strings.HasPrefix(parts[0], ".") {
				require.Contains(t, file.Volumes, parts[0], name)
				continue
			}
			require.FileExists(t, filepath.Join(root, parts[0]), name)
			require.Equal(t, "ro", parts[len(parts)-1], "%s mounts %s read-only", name, parts[0])
		}
	}
}

// stage is one FROM of the Dockerfile.
type stage struct{ from, name, body string }

func stages(t *testing.T) []stage {
	t.Helper()
	dockerfile := read(t, "Dockerfile")
	marks := regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+) AS (\S+)$`).FindAllStringSubmatchIndex(dockerfile, -1)
	require.Len(t, marks, strings.Count("\n"+dockerfile, "\nFROM "), "every stage has a name")
	var found []stage
	for i, mark := range marks {
		end := len(dockerfile)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		found = append(found, stage{from: dockerfile[mark[2]:mark[3]], name: dockerfile[mark[4]:mark[5]], body: dockerfile[mark[1]:end]})
	}
	return found
}

func TestDockerfileStages(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range stages(t) {
		if !slices.Contains(names, s.from) {
			require.Regexp(t, pinned, s.from, "%s stands on an image", s.name)
		}
		for _, copied := range regexp.MustCompile(`--from=(\S+)`).FindAllStringSubmatch(s.body, -1) {
			require.Contains(t, names, copied[1], "%s copies from a stage above it", s.name)
		}
		require.NotContains(t, names, s.name)
		names = append(names, s.name)
	}
	for name, s := range compose(t).Services {
		if s.Build != nil {
			require.Contains(t, names, s.Build.Target, name)
			require.Equal(t, ".", s.Build.Context, name)
		}
	}
	require.Subset(t, names, []string{"everpost", "standalone"})
	require.Equal(t, "everpost", names[len(names)-1], "what a build without --target makes")
}

func TestImagesRunAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	for _, s := range stages(t) {
		if s.name != "everpost" && s.name != "standalone" {
			continue
		}
		users := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindAllStringSubmatch(s.body, -1)
		require.Len(t, users, 1, s.name)
		require.NotEqual(t, "0", users[0][1], s.name)
	}
}

// Containers run with a read-only root: an image that has to write says where by a volume.
func TestContainersAreRestricted(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t).Services {
		if s.Build == nil {
			continue
		}
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt, name)
		require.Equal(t, "45s", s.StopGracePeriod, "%s: docs/operations.md#stopping", name)
	}
	for _, s := range stages(t) {
		if s.name == "standalone" {
			require.Contains(t, s.body, "\nVOLUME /var/lib/everpost\n")
			require.Contains(t, s.body, "EVERPOST_DATA_DIR=/var/lib/everpost/data")
			require.Equal(t, 1, strings.Count(s.body, "0.0.0.0"), "only the API listens beyond loopback")
			require.Contains(t, s.body, "EVERPOST_LISTEN=0.0.0.0:8080")
		}
	}
}

// The builder is the Go that go.mod asks for.
func TestBuilderMatchesGoMod(t *testing.T) {
	t.Parallel()
	asked := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, asked)
	require.Regexp(t, `^golang:`+regexp.QuoteMeta(asked[1])+`\.\d+-`, stages(t)[0].from)
}

// What the Dockerfile copies whole is what .dockerignore lets through: a new package of the root has to be added there.
func TestDockerignoreLetsTheSourcesThrough(t *testing.T) {
	t.Parallel()
	allowed := strings.Split(read(t, ".dockerignore"), "\n")
	require.Contains(t, allowed, "*")
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "bench", "deploy", "docs", "tools"}, entry.Name()) {
			continue
		}
		require.Contains(t, allowed, "!"+entry.Name())
	}
}

func TestDynamicConfig(t *testing.T) {
	t.Parallel()
	var config map[string][]struct {
		Value       any            `yaml:"value"`
		Constraints map[string]any `yaml:"constraints"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/temporal/dynamicconfig.yaml")), &config))
	require.NotEmpty(t, config)
	for key, values := range config {
		require.Regexp(t, `^(frontend|history|matching|system|limit)\.\w+$`, key)
		require.Len(t, values, 1, key)
		require.NotNil(t, values[0].Value, key)
	}
}

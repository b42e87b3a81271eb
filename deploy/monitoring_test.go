package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/everpost/everpost/internal/programtest"
)

// rule is a rule of Prometheus, of either kind.
type rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// rules are the recording rules and the alerts.
func rules(t *testing.T) (records, alerts map[string]rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/monitoring/rules.yaml")), &file))
	records, alerts = map[string]rule{}, map[string]rule{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if r.Record != "" {
				require.NotContains(t, records, r.Record)
				records[r.Record] = r
				continue
			}
			require.NotContains(t, alerts, r.Alert)
			alerts[r.Alert] = r
		}
	}
	require.Greater(t, len(records), 5)
	require.Greater(t, len(alerts), 20)
	return records, alerts
}

// Each alert says how urgent it is and where to read on, and has a section there. No section is left
// of an alert that is gone.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	_, alerts := rules(t)
	sections := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(read(t, "docs/runbooks.md"), -1) {
		require.Contains(t, alerts, match[1], "docs/runbooks.md has a section for an alert that does not exist")
		require.False(t, sections[match[1]], match[1])
		sections[match[1]] = true
	}
	for name, alert := range alerts {
		require.True(t, sections[name], "docs/runbooks.md has no section for %s", name)
		require.Equal(t, "https://github.com/everpost/everpost/blob/main/docs/runbooks.md#"+strings.ToLower(name), alert.Annotations["runbook_url"], name)
		require.Regexp(t, `^[A-Z].*\.$`, alert.Annotations["summary"], name)
		require.Contains(t, []string{"page", "warning", "info"}, alert.Labels["severity"], name)
	}
}

// panel is a panel of Grafana's dashboard.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
	GridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
}

// The dashboard is JSON that Grafana takes: ids differ, panels do not overlap, and each shows something.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var board struct {
		UID    string  `json:"uid"`
		Title  string  `json:"title"`
		Panels []panel `json:"panels"`
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/monitoring/dashboard.json")), &board))
	require.NotEmpty(t, board.UID)
	require.Equal(t, "Everpost", board.Title)
	require.Greater(t, len(board.Panels), 30)
	records, _ := rules(t)
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		require.Positive(t, p.ID, p.Title)
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		require.False(t, titles[p.Title], "two panels are called %s", p.Title)
		ids[p.ID], titles[p.Title] = true, true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[cell], "%s overlaps another panel", p.Title)
				taken[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, target.Expr, p.Title)
			for _, name := range recorded.FindAllString(target.Expr, -1) {
				require.Contains(t, records, name, "%s: no rule records it", p.Title)
			}
		}
	}
}

// recorded is the name of a recording rule of ours.
var recorded = regexp.MustCompile(`\beverpost:[a-z0-9_:]+`)

// Alerts use what is recorded, and everything that is recorded is used.
func TestRecordingRulesAreUsed(t *testing.T) {
	t.Parallel()
	records, alerts := rules(t)
	used := map[string]bool{}
	for _, r := range alerts {
		for _, name := range recorded.FindAllString(r.Expr, -1) {
			require.Contains(t, records, name, r.Alert)
			used[name] = true
		}
	}
	for _, name := range recorded.FindAllString(read(t, "deploy/monitoring/dashboard.json"), -1) {
		used[name] = true
	}
	for _, r := range records {
		for _, name := range recorded.FindAllString(r.Expr, -1) {
			used[name] = true
		}
	}
	for name := range records {
		require.True(t, used[name], "neither an alert nor the dashboard uses %s", name)
	}
}

// Prometheus itself takes the rules, each alert fires when it should, and stays silent just before.
func TestRulesWithPromtool(t *testing.T) {
	t.Parallel()
	_, alerts := rules(t)
	tests := read(t, "deploy/monitoring/rules_test.yaml") + read(t, "deploy/monitoring/rules_day_test.yaml")
	for name := range alerts {
		require.Contains(t, tests, "name: "+name+" fires\n")
		require.Contains(t, tests, "name: "+name+" is silent\n")
	}
	program := promtool(t)
	for _, arguments := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml", "rules_day_test.yaml"}} {
		command := exec.CommandContext(t.Context(), program, arguments...)
		command.Dir = filepath.Join(root, "deploy", "monitoring")
		said, err := command.CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
}

// promtool is the path of Prometheus's promtool. As root on Debian it is taken out of the package, which
// is not installed, because that would start a server.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "everpost-test", "prometheus")
	path := filepath.Join(dir, "usr", "bin", "promtool")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	const get = `set -eu; mkdir -p "$1"; cd "$1"; rm -f *.deb
		apt-get -qq download prometheus || { apt-get -qq update; apt-get -qq download prometheus; }
		dpkg-deb --extract prometheus_*.deb new; rm -f *.deb; rm -rf usr; mv new/usr usr; rm -rf new`
	if os.Geteuid() != 0 {
		programtest.Missing(t, errors.New("promtool is not installed (Debian: apt-get install prometheus), so the alert rules are not tested"))
	}
	if said, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", get, "sh", dir).CombinedOutput(); err != nil {
		programtest.Missing(t, fmt.Errorf("promtool cannot be had, so the alert rules are not tested: %s", said))
	}
	return path
}

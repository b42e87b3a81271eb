package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/config"
)

// settingsPath is where the admin listener says what the settings of its process are.
const settingsPath = "/debug/settings"

const (
	maxSettings   = 1 << 20 // bytes of such an answer
	maxDifference = 10      // settings that a finding names
	maxSettingEnd = 60      // characters of a value in a finding

	automatic = "auto" // the value of a setting that the process chooses
)

// processSettings is the answer at settingsPath. It holds no secret: see config.Shown.
type processSettings struct {
	Version  string            `json:"version"`
	API      bool              `json:"api"`
	Worker   bool              `json:"worker"`
	Settings map[string]string `json:"settings"`
}

func (a admin) settings(w http.ResponseWriter, _ *http.Request) {
	o := a.options
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// Strings always encode; if the client has gone there is nothing to do.
	_ = json.NewEncoder(w).Encode(processSettings{o.Version, o.API, o.Worker, config.Shown(o.Config)}) //nolint:errchkjson // as above
}

// process compares the settings of the process that runs with those that the other checks use, and judges them.
func (c *diagnosis) process(ctx context.Context) Finding {
	here := config.Shown(c.Config)
	if c.Admin == "" && c.AdminErr == nil {
		return processFinding(processSettings{Version: c.Version, Settings: here}, here, c.Version)
	}
	if c.AdminErr != nil {
		return skipped("the running process was not asked for its settings: " + oneLine(c.AdminErr))
	}
	running, err := askForSettings(ctx, c.Admin, "")
	if errors.Is(err, errKeyNeeded) && c.operatorKey() != "" {
		running, err = askForSettings(ctx, c.Admin, c.operatorKey())
	}
	if err != nil {
		return skipped("the process at " + c.Admin + " does not say its settings: " + oneLine(err))
	}
	return processFinding(running, here, c.Version)
}

func (c *diagnosis) operatorKey() string {
	if c.OperatorKey != "" {
		return c.OperatorKey
	}
	return c.Config.OperatorKey
}

// errKeyNeeded: the listener asks for an operator's key.
var errKeyNeeded = errors.New("it asks for an operator's key: set EVERPOST_OPERATOR_KEY")

// askForSettings asks the admin listener at an address. The key is for a listener that others reach, too; "" for none.
func askForSettings(ctx context.Context, address, key string) (running processSettings, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+settingsPath, http.NoBody)
	if err != nil {
		return running, fmt.Errorf("make a request: %w", err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy: it is on this machine
	w, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	if err != nil {
		return running, fmt.Errorf("ask it: %w", err)
	}
	defer func() { _ = w.Body.Close() }()
	switch {
	case w.StatusCode == http.StatusUnauthorized && key == "":
		return running, errKeyNeeded
	case w.StatusCode == http.StatusNotFound:
		return running, errors.New("it is of another release, or another program")
	case w.StatusCode != http.StatusOK:
		return running, fmt.Errorf("it answers with the status %d", w.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(w.Body, maxSettings)).Decode(&running); err != nil {
		return running, fmt.Errorf("read its answer: %w", err)
	}
	return running, nil
}

// processFinding judges the settings of a process, and compares them with those that the checks use.
func processFinding(running processSettings, here map[string]string, version string) Finding {
	found := unsafeSettings(running.Settings)
	if running.Version != version {
		found = append(found, fmt.Sprintf("it is of the release %s, and this is %s", running.Version, version))
	}
	differ := differences(running.Settings, here)
	found = append(found, differ...)
	switch {
	case len(found) == 0:
		return ok("its settings are those that were checked, and none takes a protection away")
	case len(differ) > 0:
		return warning(strings.Join(found, "; "), "run doctor with the settings of the process, or start the process again with these")
	}
	return Finding{
		Verdict: console.VerdictWarning, Detail: strings.Join(found, "; "),
		Remedy: "leave out what is not needed: docs/configuration.md says what each setting does",
	}
}

// differences are the settings that differ, in sentences. The address of the admin listener is where the process was found. A process
// replaces auto by what it chooses, and a free port can be any.
func differences(running, here map[string]string) (found []string) {
	more := 0
	for _, name := range slices.Sorted(maps.Keys(running)) {
		known, is := here[name]
		switch {
		case !is || name == "EVERPOST_ADMIN_LISTEN" || known == running[name] || known == automatic || strings.HasSuffix(running[name], ":0"):
		case len(found) == maxDifference:
			more++
		default:
			found = append(found, fmt.Sprintf("%s is %s here and %s in the running process", name, settingWords(known), settingWords(running[name])))
		}
	}
	if more > 0 {
		found = append(found, fmt.Sprintf("%d more differ", more))
	}
	return found
}

// settingWords is a value in a sentence.
func settingWords(value string) string {
	if value == "" {
		return "not set"
	}
	if utf8.RuneCountInString(value) > maxSettingEnd {
		return string([]rune(value)[:maxSettingEnd]) + "…"
	}
	return value
}

// unsafeSettings are the settings of a process that take a protection away, in sentences.
func unsafeSettings(running map[string]string) (found []string) {
	for _, s := range []struct {
		name, means string
		is          func(value string) bool
	}{
		{"EVERPOST_ALLOW_HTTP", "payloads and signatures may be sent unencrypted", func(v string) bool { return v == "true" }},
		{"EVERPOST_ALLOWED_CIDRS", "tenants' endpoints may be at private addresses", func(v string) bool { return v != "" }},
		{"EVERPOST_EXTRA_PORTS", "tenants' endpoints may be at any port", func(v string) bool { return v == "any" }},
		{"EVERPOST_ADMIN_HOSTS", "web pages in a browser may read the admin listener", func(v string) bool { return v == "any" }},
		{"EVERPOST_TRUSTED_PROXIES", "everyone can choose the address in the audit log", func(v string) bool {
			return slices.ContainsFunc(strings.Split(v, ","), func(one string) bool { return strings.HasSuffix(one, "/0") })
		}},
	} {
		if value := running[s.name]; s.is(value) {
			found = append(found, fmt.Sprintf("with %s=%s %s", s.name, settingWords(value), s.means))
		}
	}
	return found
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
)

// browserVariable names a Chromium to use instead of the one that is installed.
const browserVariable = "EVERPOST_TEST_BROWSER"

// errNoBrowser says why the tests of the console in a browser are skipped.
var errNoBrowser = errors.New("no browser: Chromium is not installed, and cannot be (it is a package of Debian; that needs root)")

// findBrowser returns the Chromium of this machine. As root on Debian it installs the package if there is none, as the
// tests do with PostgreSQL.
var findBrowser = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(browserVariable); given != "" {
		return given, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	apt, err := exec.LookPath("apt-get")
	if _, debian := os.Stat("/etc/debian_version"); err != nil || debian != nil || os.Geteuid() != 0 {
		return "", errNoBrowser
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"update", "--quiet"},
		{"install", "--quiet", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"},
	} {
		command := exec.CommandContext(ctx, apt, args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := command.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return "", fmt.Errorf("%w: apt-get %s: %w: %s", errNoBrowser, args[0], err, lines[len(lines)-1])
		}
	}
	return exec.LookPath("chromium")
})

// browsers starts one Chromium for all tests of a group. Each window has a profile of its own.
type browsers struct {
	ctx context.Context
}

// startBrowser starts a browser.
func startBrowser(t *testing.T) *browsers {
	t.Helper()
	path, err := findBrowser()
	if errors.Is(err, errNoBrowser) {
		programtest.Missing(t, err)
	}
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(chromedp.DefaultExecAllocatorOptions)],
		chromedp.ExecPath(path), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox refuses root
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx), "start %s", path)
	return &browsers{ctx: ctx}
}

// window is a browser's window with a profile of its own.
type window struct {
	t    *testing.T
	ctx  context.Context
	base string // of the console: http://127.0.0.1:8080/console

	mu     sync.Mutex
	errors []string
	status map[int]bool // of documents that a test asks for, and that Chromium reports as errors
	blocks bool         // a test asks for what Chromium blocks across origins
}

// open opens a window. At the end of the test, nothing may be an error in the browser's console.
func (s *browsers) open(t *testing.T, in *instance) *window {
	t.Helper()
	ctx, cancel := chromedp.NewContext(s.ctx, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	w := &window{t: t, ctx: ctx, base: in.addr["api"] + "/console", status: map[int]bool{}}
	require.NoError(t, chromedp.Do(ctx))
	messages := chromedp.Console(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == chromedp.ConsoleError {
				w.note(m)
			}
		}
	}()
	t.Cleanup(func() {
		w.requireNoErrors()
		stop()
		<-done
		cancel()
	})
	return w
}

func (w *window) note(m chromedp.ConsoleMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for status := range w.status {
		if m.Source == "network" && strings.Contains(m.Text, fmt.Sprintf("status of %d ", status)) {
			return
		}
	}
	if w.blocks && (strings.Contains(m.Text, "blocked by CORS policy") || strings.Contains(m.Text, "net::ERR_FAILED")) {
		return
	}
	w.errors = append(w.errors, m.String()+" ("+m.URL+")")
}

func (w *window) requireNoErrors() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errors) > 0 {
		w.t.Errorf("errors in the browser's console: %s", strings.Join(w.errors, "; "))
		w.errors = nil
	}
}

// expect says that the test asks for documents with a status that Chromium reports.
func (w *window) expect(statuses ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, status := range statuses {
		w.status[status] = true
	}
}

// expectBlocked says that the test asks for what Chromium blocks across origins, and reports.
func (w *window) expectBlocked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks = true
}

// show goes to a page of the console and requires its status.
func (w *window) show(path string, status int) {
	w.t.Helper()
	if status >= http.StatusBadRequest {
		w.expect(status)
	}
	response, err := chromedp.Run(w.ctx, chromedp.NavigateResponse(w.base+path))
	require.NoError(w.t, err, path)
	require.EqualValues(w.t, status, response.Status, "%s: %s", path, w.text())
}

// press clicks what a selector or an XPath finds, and waits for the page that follows: on a busy machine, what the
// browser reports as loaded may still be the page before.
func (w *window) press(selector string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	evaluate[bool](w, `window.wasPressed = true`)
	_, err := chromedp.RunResponse(ctx, chromedp.Click(selector, chromedp.NodeVisible))
	require.NoError(w.t, err, "press %s on %s: %s", selector, w.path(), w.text())
	eventually(ctx, w.t, func() string {
		if evaluate[bool](w, `!window.wasPressed && document.readyState === "complete"`) {
			return ""
		}
		return fmt.Sprintf("no page follows after %s was pressed on %s", selector, w.path())
	})
}

// pressButton presses the first button or link with a text.
func (w *window) pressButton(text string) {
	w.t.Helper()
	w.press(fmt.Sprintf(`(//main//*[self::button or self::a][starts-with(normalize-space(), %q)])[1]`, text))
}

// fill types into a field, by its name.
func (w *window) fill(name, value string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.SetValue(chromedp.CSS(`main [name="`+name+`"]`), value)), name)
}

// text is the page's text as a reader sees it.
func (w *window) text() string {
	w.t.Helper()
	return evaluate[string](w, `document.body ? document.body.innerText : ""`)
}

// path is the address of the page below the console's, without a fragment.
func (w *window) path() string {
	w.t.Helper()
	return strings.TrimPrefix(evaluate[string](w, `location.href.split("#")[0]`), w.base)
}

// evaluate asks the page.
func evaluate[T any](w *window, expression string) T {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(w.t, err, "%.200s", expression)
	return value
}

// await waits until the page says something. With reload, the page is loaded again and again, as a reader without scripts
// does; else it has to change by itself.
func (w *window) await(said string, reload bool) {
	w.t.Helper()
	w.awaitIn(contextFor(w.t, patience), said, reload)
}

func (w *window) awaitIn(ctx context.Context, said string, reload bool) {
	w.t.Helper()
	eventually(ctx, w.t, func() string {
		if strings.Contains(w.text(), said) {
			return ""
		}
		if reload {
			require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Reload()))
		}
		return fmt.Sprintf("%s does not say %q: %s", w.path(), said, w.text())
	})
}

// withoutScripts switches JavaScript off for the pages that follow.
func (w *window) withoutScripts() {
	w.t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(w.t, err)
}

// theme sets what the reader's system prefers: "light" or "dark".
func (w *window) theme(name string) {
	w.t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	require.NoError(w.t, err)
}

// size sets the window's size.
func (w *window) size(width, height int64) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.EmulateViewport(width, height)))
}

// axeVersion is the release of axe-core, an npm package, that looks at the pages.
const axeVersion = "4.14.1"

// axeSource returns the source of axe-core, which npm installs into a temporary directory.
var axeSource = sync.OnceValues(func() (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is not installed: %w", err)
	}
	dir, err := os.MkdirTemp("", "everpost-axe-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix", dir, "axe-core@"+axeVersion)
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w: %.300s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(source), err
})

// axe returns what axe-core has against the page: a line for each violation.
func (w *window) axe(source string) []string {
	w.t.Helper()
	// The page's policy forbids a script element: the source is evaluated as a developer's console would.
	_, err := chromedp.Run(w.ctx, chromedp.Evaluate[chromedp.Void](`if (!window.axe) { `+source+` }`))
	require.NoError(w.t, err)
	return evaluate[[]string](w, `axe.run({resultTypes: ["violations"]}).then(found => found.violations.map(v =>
		v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " " + n.failureSummary.slice(0, 200)).join(" | ")))`)
}

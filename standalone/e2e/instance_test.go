package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
)

// instance is a standalone installation in a directory of its own. It may live
// several times, always on the same ports.
type instance struct {
	home    string // holds data and log
	data    string
	logPath string
	env     settings

	program string // starts the binary, if it is not the binary itself
	log     *os.File
	process *process
	addr    map[string]string // the fields of the ready line
	key     string            // of the operator

	namespace string // in Temporal
	fleet     *fleet // what runs in the place of its API and worker; nil: nothing
	http      *http.Client
}

// newInstance makes a home for an instance, which is not started.
func newInstance() (*instance, error) {
	home, err := os.MkdirTemp("", "everpost-e2e-")
	if err != nil {
		return nil, err
	}
	// As root the database runs as another user, which needs access.
	if err := os.Chmod(home, 0o711); err != nil {
		return nil, err
	}
	in := &instance{
		home: home, data: filepath.Join(home, "data"), logPath: filepath.Join(home, "log"),
		namespace: "default",
		http:      &http.Client{Transport: watched(&http.Transport{MaxIdleConnsPerHost: 64}), Timeout: 30 * time.Second},
	}
	in.env = settings{
		"EVERPOST_DATA_DIR": in.data, "EVERPOST_DEMO": "off",
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_ADMIN_LISTEN": "127.0.0.1:0",
		"EVERPOST_TEMPORAL_LISTEN": "127.0.0.1:0", "EVERPOST_UI_LISTEN": "127.0.0.1:0",
		"EVERPOST_ALLOW_HTTP": "true", "EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8", "EVERPOST_EXTRA_PORTS": "any",
	}
	in.log, err = os.OpenFile(in.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return in, err
}

// ownInstance is a started instance for one test alone.
func ownInstance(t *testing.T, further settings) *instance {
	t.Helper()
	in := ownHome(t)
	in.env = in.env.With(further)
	require.NoError(t, in.start(contextFor(t, startPatience)))
	return in
}

// ownDatabase is a started instance for one test alone, on a PostgreSQL that goes on without it.
func ownDatabase(t *testing.T) *instance {
	t.Helper()
	in := ownHome(t)
	database, err := localpg.Start(t.Context(), localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		if in.process != nil && in.process.Running() {
			require.NoError(t, in.process.Terminate())
		}
		require.NoError(t, database.Stop(context.Background()))
	})
	in.env = in.env.With(settings{"EVERPOST_DATABASE_URL": database.URL(localpg.Database)})
	require.NoError(t, in.start(contextFor(t, startPatience)))
	return in
}

// hosts counts the loopback addresses of instances.
var hosts atomic.Uint32

// ownHost is a loopback address that nothing else of this process listens at. While an instance is down, its ports there are nobody's:
// outgoing connections take theirs at 127.0.0.1.
func ownHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8%64, os.Getpid()%256, hosts.Add(1)%250+1)
}

// ownHome is an instance for one test alone, not started. Whatever runs of it when
// the test ends is stopped.
func ownHome(t *testing.T) *instance {
	t.Helper()
	needsStandalone(t, itsOwn)
	ownInstances.take(t)
	in, err := newInstance()
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		at := ownHost() + ":0"
		in.env = in.env.With(settings{
			"EVERPOST_LISTEN": at, "EVERPOST_ADMIN_LISTEN": at, "EVERPOST_TEMPORAL_LISTEN": at, "EVERPOST_UI_LISTEN": at,
		})
	}
	t.Cleanup(in.remove)
	t.Cleanup(func() {
		if in.process != nil && in.process.Running() {
			if err := in.stop(); err != nil {
				t.Errorf("stop the instance: %v", err)
			}
		}
	})
	in.showLog(t)
	return in
}

// showLog prints what the instance logged during the test, should that fail.
func (in *instance) showLog(t *testing.T) {
	t.Helper()
	var begin int64
	if info, err := os.Stat(in.logPath); err == nil {
		begin = info.Size()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the instance's log during this test:\n%s", in.tail(begin))
		}
	})
}

// tail is the end of the log, at most 16 KiB and nothing before the offset.
func (in *instance) tail(begin int64) string {
	if in == nil {
		return ""
	}
	text, err := os.ReadFile(in.logPath)
	if err != nil {
		return err.Error()
	}
	text = text[min(begin, int64(len(text))):]
	return string(text[max(0, len(text)-16<<10):])
}

// start runs it and waits until it is ready. After the first time the ports are fixed.
func (in *instance) start(ctx context.Context) error {
	p, err := processtest.Launch(cmp.Or(in.program, binary), in.env, in.log, "standalone")
	if err != nil {
		return err
	}
	in.process = p
	if in.addr, err = p.Ready(ctx); err != nil {
		return err
	}
	for setting, field := range map[string]string{
		"EVERPOST_LISTEN": "api", "EVERPOST_ADMIN_LISTEN": "admin", "EVERPOST_UI_LISTEN": "ui", "EVERPOST_TEMPORAL_LISTEN": "temporal",
	} {
		in.env[setting] = strings.TrimPrefix(in.addr[field], "http://")
		if in.env[setting] == "" {
			return fmt.Errorf("the ready line has no %s", field)
		}
	}
	key, err := os.ReadFile(in.addr["key_file"])
	in.key = string(bytes.TrimSpace(key))
	return err
}

// stop is SIGTERM.
func (in *instance) stop() error {
	in.http.CloseIdleConnections()
	return errors.Join(in.fleet.stop(), in.process.Terminate())
}

// restart starts it again after stop or kill, on the same data and ports.
func (in *instance) restart(t *testing.T) {
	t.Helper()
	in.http.CloseIdleConnections()
	require.NoError(t, in.start(contextFor(t, startPatience)), "start again without any manual step")
}

// remove deletes everything on disk.
func (in *instance) remove() {
	in.http.CloseIdleConnections()
	_ = in.log.Close()
	_ = os.RemoveAll(in.home)
}

// postmaster is the process id of the private PostgreSQL, 0 when it says none.
func (in *instance) postmaster(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(in.data, "postgres", "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	if line == "" { // it is being written
		return 0
	}
	id, err := strconv.Atoi(line)
	require.NoError(t, err)
	return id
}

// requireNoServer checks that no PostgreSQL runs on the data directory.
func (in *instance) requireNoServer(t *testing.T) {
	t.Helper()
	require.Zero(t, in.postmaster(t), "postmaster.pid is left")
	if ids, known := serversOf(in.data); known {
		require.Empty(t, ids, "PostgreSQL is left running on the data directory")
	}
}

// requireOneServer checks that exactly one PostgreSQL runs on the data directory,
// and that it is this life's own child.
func (in *instance) requireOneServer(t *testing.T) {
	t.Helper()
	ids, known := serversOf(in.data)
	if !known {
		return
	}
	require.Equal(t, []int{in.postmaster(t)}, ids)
	require.Equal(t, in.process.Command.Process.Pid, parentOf(ids[0]), "PostgreSQL is an orphan")
}

// temporal is a client of the embedded Temporal that closes with the test.
func (in *instance) temporal(t *testing.T) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: in.addr["temporal"], Namespace: in.namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// quiet drops what the SDK says about the retries of a test's own client.
type quiet struct{}

var _ log.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

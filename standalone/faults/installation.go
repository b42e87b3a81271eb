package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	temporal "go.temporal.io/sdk/client"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
)

// binaries are what is tested.
type binaries struct {
	standalone, cluster string
	previous            string // the cluster's of the previous release; "" if there is none
	self                string // runs Temporal for the shapes of several processes
}

// installation is a running Everpost of a shape. It serves many runs, each with a tenant of its own.
type installation struct {
	shape     shape
	binaries  binaries
	home      string
	log       *os.File
	parts     []*part
	database  atomic.Pointer[localpg.Supervised] // nil when standalone runs its own
	settings  map[string]string                  // of the database
	recovery  map[string]string                  // settings of its recovery from a power cut
	preload   []string                           // environment that gives it another clock
	lock      *localpg.Lock
	links     map[string]*link // by "caller>target"
	apis      []*client.Client
	engine    temporal.Client
	failpoint string // file that arms a failpoint
	temporary string // directory for temporary files of all parts
	tenants   int    // that were made
}

const operatorKey = "the-operator-of-a-fault-harness-1234"

// addresses counts the loopback addresses that were given away.
var addresses atomic.Uint32

// ownHost is a loopback address that nothing else has: whoever stops to listen there finds its port free afterwards.
func ownHost() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%64, n/250%250, n%250+1)
}

// ownAddress is a free port of such an address.
func ownAddress() string { return ownHost() + ":0" }

// install makes and starts an installation.
func install(ctx context.Context, b binaries, s shape) (_ *installation, err error) {
	home, err := os.MkdirTemp("", "everpost-faults-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	in := &installation{
		shape: s, binaries: b, home: home, links: map[string]*link{}, failpoint: filepath.Join(home, "failpoint"), temporary: filepath.Join(home, "tmp"),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.remove())
		}
	}()
	// As root the database runs as another user, which has to enter.
	if err := os.Chmod(home, 0o711); err != nil {
		return nil, fmt.Errorf("open %s: %w", home, err)
	}
	if err := os.Mkdir(in.temporary, 0o777); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	if in.log, err = os.OpenFile(filepath.Join(home, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if s.alone() {
		err = in.startStandalone(ctx)
	} else {
		err = in.startProcesses(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := in.connect(); err != nil {
		return nil, err
	}
	return in, nil
}

// common are the settings of every shape.
func (in *installation) common() processtest.Settings {
	return processtest.Settings{
		"EVERPOST_ADMIN_LISTEN": ownAddress(), "EVERPOST_ALLOW_HTTP": "true", "EVERPOST_ALLOWED_CIDRS": "127.0.0.0/8", "EVERPOST_EXTRA_PORTS": "any",
		"EVERPOST_OPERATOR_KEY": operatorKey, "EVERPOST_FAILPOINT": in.failpoint,
	}
}

func (in *installation) startStandalone(ctx context.Context) error {
	p := in.add("everpost", in.binaries.standalone, in.common().With(processtest.Settings{
		"EVERPOST_DATA_DIR": filepath.Join(in.home, "data"), "EVERPOST_DEMO": "off", "EVERPOST_LISTEN": ownAddress(),
		"EVERPOST_TEMPORAL_LISTEN": ownAddress(), "EVERPOST_UI_LISTEN": ownAddress(),
	}), "standalone")
	return p.restart(ctx)
}

func (in *installation) add(name, program string, env processtest.Settings, args ...string) *part {
	env["TMPDIR"] = in.temporary
	p := &part{name: name, program: program, args: args, env: env, log: in.log}
	in.parts = append(in.parts, p)
	return p
}

// startProcesses starts PostgreSQL, Temporal, APIs and workers. Each pair of them has a link of its own kind.
func (in *installation) startProcesses(ctx context.Context) error {
	server, err := in.startDatabase(ctx)
	if err != nil {
		return err
	}
	through := func(caller string) (string, error) {
		l, err := newLink("postgres", server)
		if err != nil {
			return "", err
		}
		in.links[caller+">postgres"] = l
		return "postgres://everpost@" + l.address() + "/" + localpg.Database + "?sslmode=disable", nil
	}
	database, err := through("temporal")
	if err != nil {
		return err
	}
	engine := in.add("temporal", in.binaries.self, processtest.Settings{}, temporalCommand, "-database", database, "-listen", ownAddress())
	if err := engine.restart(ctx); err != nil {
		return err
	}
	for _, kind := range []struct {
		name  string
		count int
	}{{"api", in.shape.apis}, {"worker", in.shape.workers}, {"serve", in.shape.serves}} {
		if kind.count == 0 {
			continue
		}
		env := in.common()
		if env["EVERPOST_DATABASE_URL"], err = through(kind.name); err != nil {
			return err
		}
		l, err := newLink("temporal", engine.address["temporal"])
		if err != nil {
			return err
		}
		in.links[kind.name+">temporal"] = l
		env["TEMPORAL_ADDRESS"], env["EVERPOST_KEK"] = l.address(), "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="
		if done, err := processtest.Run(ctx, in.binaries.cluster, env, "migrate"); err != nil || done.Code != 0 {
			return fmt.Errorf("migrate: %w %s", err, done.Stderr)
		}
		for n := range kind.count {
			p := in.add(kind.name+"-"+strconv.Itoa(n+1), in.binaries.cluster, env.With(processtest.Settings{"EVERPOST_ADMIN_LISTEN": ownAddress()}), kind.name)
			if kind.name != "worker" {
				p.env["EVERPOST_LISTEN"] = ownAddress()
			}
			if kind.name != "api" {
				if err := in.linkLanes(p); err != nil {
					return err
				}
			}
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	for _, p := range in.parts[1:] {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// linkLanes lets the other processes reach a process through a link. Its next life has the same address.
func (in *installation) linkLanes(p *part) error {
	at := ownHost() + ":8082"
	l, err := newLink(p.name, at)
	if err != nil {
		return err
	}
	in.links["lanes>"+p.name] = l
	p.env["EVERPOST_LANE_LISTEN"], p.env["EVERPOST_LANE_ADDRESS"] = at, l.address()
	return nil
}

// accessRules let every login of this machine in, without a password.
const accessRules = "local all,replication everpost trust\nhost all everpost 127.0.0.0/8 trust\n"

// startDatabase starts PostgreSQL on an address of its own. Without a password, on loopback only.
func (in *installation) startDatabase(ctx context.Context) (address string, err error) {
	host := ownHost()
	access := filepath.Join(in.home, "pg_hba.conf")
	if err := os.WriteFile(access, []byte(accessRules), 0o644); err != nil {
		return "", fmt.Errorf("write access rules: %w", err)
	}
	if in.lock, err = localpg.LockDir(ctx, in.clusterDir(), nil); err != nil {
		return "", fmt.Errorf("lock the database's directory: %w", err)
	}
	in.settings = map[string]string{"listen_addresses": host, "hba_file": access, "shared_buffers": "128MB"}
	if err := in.superviseDatabase(ctx); err != nil {
		return "", err
	}
	return host + ":5432", nil
}

func (in *installation) clusterDir() string { return filepath.Join(in.home, "database") }

func (in *installation) superviseDatabase(ctx context.Context) error {
	settings := maps.Clone(in.settings)
	maps.Copy(settings, in.recovery)
	started, err := localpg.Supervise(ctx, localpg.Options{Dir: in.clusterDir(), Lock: in.lock, Settings: settings, Env: in.preload})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	in.database.Store(started)
	return nil
}

// connect makes the clients. Those of the API and of Temporal are not disturbed by the links.
func (in *installation) connect() error {
	key, engine := operatorKey, ""
	for _, p := range in.parts {
		if at := p.address["api"]; at != "" {
			l, err := newLink("api", strings.TrimPrefix(at, "http://"))
			if err != nil {
				return err
			}
			in.links["client>"+p.name] = l
			api, err := client.New(client.Config{URL: "http://" + l.address(), Key: key, UserAgent: "faults"})
			if err != nil {
				return fmt.Errorf("make a client of the API: %w", err)
			}
			in.apis = append(in.apis, api)
		}
		if at := p.address["temporal"]; at != "" && engine == "" {
			engine = at
		}
	}
	var err error
	if in.engine, err = temporal.NewLazyClient(temporal.Options{HostPort: engine, Logger: quiet{}}); err != nil {
		return fmt.Errorf("make a client of Temporal: %w", err)
	}
	return nil
}

// quiet drops what Temporal's SDK says about retries.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// databaseURL is the database's own address, without a link.
func (in *installation) databaseURL(name string) (string, error) {
	if database := in.database.Load(); database != nil {
		return database.URL(name), nil
	}
	at, err := localpg.RunningURL(filepath.Join(in.home, "data"), name)
	if err != nil {
		return "", fmt.Errorf("find the database: %w", err)
	}
	return at, nil
}

// dial connects to the database, and tries until ctx is done.
func (in *installation) dial(ctx context.Context) (*pgx.Conn, error) {
	for {
		at, err := in.databaseURL(localpg.Database)
		if err == nil {
			var conn *pgx.Conn
			if conn, err = pgx.Connect(ctx, at); err == nil {
				return conn, nil
			}
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return nil, fmt.Errorf("connect to the database: %w", err)
		}
	}
}

// postmaster is the process id of PostgreSQL.
func (in *installation) postmaster() (int, error) {
	at, err := in.databaseURL(localpg.Database)
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(at)
	if err != nil {
		return 0, fmt.Errorf("read the database's address: %w", err)
	}
	lock, err := os.ReadFile(filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432.lock"))
	if err != nil {
		return 0, fmt.Errorf("find PostgreSQL's process: %w", err)
	}
	first, _, _ := bytes.Cut(lock, []byte("\n"))
	return strconv.Atoi(string(first))
}

func (in *installation) part(name string) *part {
	for _, p := range in.parts {
		if p.name == name {
			return p
		}
	}
	return nil
}

// remove stops everything and deletes all files.
func (in *installation) remove() error {
	var all []error
	if in.engine != nil {
		in.engine.Close()
	}
	for _, p := range slices.Backward(in.parts) {
		all = append(all, p.stop())
	}
	if database := in.database.Load(); database != nil {
		all = append(all, database.Stop(context.Background()))
	}
	if in.lock != nil {
		in.lock.Release()
	}
	for _, l := range in.links {
		l.stop()
	}
	if in.log != nil {
		_ = in.log.Close()
	}
	return errors.Join(append(all, os.RemoveAll(in.home))...)
}

// signalAll sends a signal to parts at once.
func signalAll(s syscall.Signal, parts ...*part) error {
	var all []error
	for _, p := range parts {
		all = append(all, p.signal(s))
	}
	return errors.Join(all...)
}

// logTail bounds what is shown of the log.
const logTail = 8 << 10

func (in *installation) logSize() int64 {
	info, err := in.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince is what was logged from an offset on, and the character before it.
func (in *installation) logSince(begin int64) ([]byte, error) {
	log, err := os.ReadFile(in.log.Name())
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return log[min(max(begin-1, 0), int64(len(log))):], nil
}

// logFrom is the end of what was logged from an offset on.
func (in *installation) logFrom(begin int64) string {
	text, err := os.ReadFile(in.log.Name())
	if err != nil {
		return err.Error()
	}
	text = text[min(begin, int64(len(text))):]
	return string(text[max(0, len(text)-logTail):])
}

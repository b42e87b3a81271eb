package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/processtest"
)

// shapes are the processes of everpost-cluster that EVERPOST_TEST_SHAPE has the shared instance run as.
var shapes = map[string][]string{
	"serve": {"serve", "serve"},
	"split": {"api", "api", "worker", "worker", "worker"},
}

// wantedShape is the shape of the shared instance; "" is standalone.
func wantedShape() string { return os.Getenv("EVERPOST_TEST_SHAPE") }

// Why a test says nothing of other shapes.
const (
	itsOwn      = "it is about standalone: its files, its settings or its own server"
	knownAtOnce = "an API may not know the endpoint yet, and then the first request is not eager"
	knownToOne  = "only the process that sends a request knows of it in its first second"
)

// needsStandalone skips a test in every other shape.
func needsStandalone(t *testing.T, why string) {
	t.Helper()
	if wantedShape() != "" {
		t.Skip(why)
	}
}

// fleet is several processes on one PostgreSQL and on the Temporal of a standalone instance.
type fleet struct {
	database  *localpg.Cluster
	processes []*process
	balancer  *httptest.Server
}

// becomeFleet puts a fleet of a shape in the place of the instance's own API and worker. The instance is left as the
// Temporal of it, with the Web UI.
func (in *instance) becomeFleet(ctx context.Context, shape string) (err error) {
	commands, known := shapes[shape]
	if !known {
		return fmt.Errorf("EVERPOST_TEST_SHAPE: there is no shape %q", shape)
	}
	cluster, err := buildCluster(in.home)
	if err != nil {
		return err
	}
	in.fleet, in.namespace = &fleet{}, "fleet"
	in.fleet.database, err = localpg.Start(ctx, localpg.Options{Dir: filepath.Join(in.home, "database"), Unsafe: true})
	if err != nil {
		return err
	}
	env := clusterSettings(in.fleet.database.URL(localpg.Database), in.addr["temporal"], in.namespace)
	in.key = env["EVERPOST_OPERATOR_KEY"]
	for _, command := range []string{"setup-temporal", "migrate"} {
		f, err := processtest.Run(ctx, cluster, env, command)
		if err != nil {
			return err
		}
		if f.Code != 0 {
			return fmt.Errorf("everpost %s: exit code %d: %s", command, f.Code, f.Stderr)
		}
	}
	listening := env.With(settings{"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_UI_URL": in.addr["ui"]})
	for _, command := range commands {
		of := env
		if command != "worker" {
			of = listening
		}
		p, err := processtest.Launch(cluster, of, in.log, command)
		if err != nil {
			return err
		}
		in.fleet.processes = append(in.fleet.processes, p)
	}
	var apis []*url.URL
	for _, p := range in.fleet.processes {
		addr, err := p.Ready(ctx)
		if err != nil {
			return err
		}
		in.addr["admin"] = addr["admin"]
		if addr["api"] == "" {
			continue
		}
		api, err := url.Parse(addr["api"])
		if err != nil {
			return err
		}
		apis = append(apis, api)
	}
	in.fleet.balancer = balance(apis)
	in.addr["api"] = in.fleet.balancer.URL
	return nil
}

// balance is a load balancer that sends each request to the next of several APIs.
func balance(apis []*url.URL) *httptest.Server {
	var turn atomic.Uint64
	return httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(apis[turn.Add(1)%uint64(len(apis))])
			r.Out.Host = r.In.Host
		},
		FlushInterval: -1, // streams
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorLog:      log.New(io.Discard, "", 0), // a client may go away
	})
}

// senders is how many processes of the instance send requests.
func (in *instance) senders() int {
	if in.fleet == nil {
		return 1
	}
	return len(slices.DeleteFunc(slices.Clone(shapes[wantedShape()]), func(command string) bool { return command == "api" }))
}

// waitReasons are why a delivery may wait for an endpoint whose slots are all taken. In a fleet the owner of its lane may not answer in time.
func (in *instance) waitReasons() []string {
	reasons := []string{"in_flight", "capacity"}
	if in.fleet != nil {
		reasons = append(reasons, "no_owner")
	}
	return reasons
}

func (f *fleet) stop() (err error) {
	if f == nil {
		return nil
	}
	if f.balancer != nil {
		f.balancer.CloseClientConnections()
		f.balancer.Close()
	}
	for _, p := range f.processes {
		err = errors.Join(err, p.Terminate())
	}
	if f.database != nil {
		err = errors.Join(err, f.database.Stop(context.Background()))
	}
	return err
}

// uiPath is the path of the instance's workflows in the Web UI.
func (in *instance) uiPath() string {
	return strings.TrimSuffix(in.addr["ui"], "/") + "/namespaces/" + in.namespace + "/workflows/"
}

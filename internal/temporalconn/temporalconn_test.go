package temporalconn_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/everpost/everpost/internal/temporalconn"
	"github.com/everpost/everpost/internal/temporalconn/temporalconntest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary"

// env is an environment.
type env map[string]string

func (e env) LookupEnv(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func (e env) Environ() []string {
	var all []string
	for name, value := range e {
		all = append(all, name+"="+value)
	}
	return all
}

// load reads settings, without a configuration file of the machine that the test runs on.
func load(t *testing.T, e env) (client.Options, error) {
	t.Helper()
	all := env{"TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none")}
	maps.Copy(all, e)
	return temporalconn.Load(all, slog.New(slog.DiscardHandler))
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	o, err := load(t, nil)
	require.NoError(t, err)
	require.Equal(t, "localhost:7233", o.HostPort)
	require.Equal(t, "default", o.Namespace)
	require.Nil(t, o.ConnectionOptions.TLS)
	require.False(t, o.ConnectionOptions.TLSDisabled)
	require.Nil(t, o.Credentials)

	o, err = load(t, env{"TEMPORAL_ADDRESS": "x.tmprl.cloud:7233", "TEMPORAL_NAMESPACE": "n", "TEMPORAL_API_KEY": canary})
	require.NoError(t, err)
	require.Equal(t, "x.tmprl.cloud", o.ConnectionOptions.TLS.ServerName, "an API key turns TLS on")
	require.EqualValues(t, tls.VersionTLS12, o.ConnectionOptions.TLS.MinVersion)
	require.NotNil(t, o.Credentials)
}

func TestTLSIsRequiredOverANetwork(t *testing.T) {
	t.Parallel()
	for address, open := range map[string]bool{
		"localhost:7233": true, "127.0.0.1:7233": true, "[::1]:7233": true, "127.8.0.1": true,
		"temporal:7233": false, "temporal.example.com:7233": false, "10.0.0.1:7233": false, "[2001:db8::1]:7233": false, "localhost.example.com:7233": false,
	} {
		for _, value := range []string{"true", "false"} {
			o, err := load(t, env{"TEMPORAL_ADDRESS": address, "TEMPORAL_TLS": value})
			require.NoError(t, err, address)
			require.Equal(t, value == "true", o.ConnectionOptions.TLS != nil)
			require.Equal(t, value == "false", o.ConnectionOptions.TLSDisabled)
		}
		_, err := load(t, env{"TEMPORAL_ADDRESS": address})
		if open {
			require.NoError(t, err, address)
		} else {
			require.ErrorContains(t, err, "TEMPORAL_ADDRESS: the connection to "+address+" would not be encrypted; set TEMPORAL_TLS=true")
		}
		_, err = load(t, env{"TEMPORAL_ADDRESS": address, "TEMPORAL_TLS": "false", "TEMPORAL_API_KEY": canary})
		if open {
			require.NoError(t, err, address)
		} else {
			require.ErrorContains(t, err, "TEMPORAL_TLS: is false, and the API key would be sent to "+address)
		}
	}
}

func TestUnusableSettings(t *testing.T) {
	t.Parallel()
	authority, files, mixed := temporalconntest.NewAuthority(t), temporalconntest.NewFiles(t), temporalconntest.NewFiles(t)
	files.Write(authority)
	files.WriteClient(t, authority.Issue("client", time.Hour))
	mixed.WriteClient(t, authority.Issue("client", time.Hour))
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, test := range []struct {
		env  env
		want []string
	}{
		{env{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "/does/not/exist"}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH: ", "no such file"}},
		{env{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": file(canary)}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH: ", "holds no certificate"}},
		{env{"TEMPORAL_TLS_SERVER_CA_CERT_DATA": canary}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_DATA: holds no certificate"}},
		{
			env{"TEMPORAL_TLS_SERVER_CA_CERT_DATA": canary, "TEMPORAL_TLS_SERVER_CA_CERT_PATH": files.CA},
			[]string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH: is set together with"},
		},
		{env{"TEMPORAL_TLS_CLIENT_CERT_PATH": files.Cert}, []string{"TEMPORAL_TLS_CLIENT_CERT_PATH, TEMPORAL_TLS_CLIENT_KEY_PATH: one is set without"}},
		{
			env{"TEMPORAL_TLS_CLIENT_CERT_PATH": files.Cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": "/does/not/exist"},
			[]string{"TEMPORAL_TLS_CLIENT_KEY_PATH: ", "no such file"},
		},
		{
			env{"TEMPORAL_TLS_CLIENT_CERT_PATH": files.Cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": mixed.Key},
			[]string{"TEMPORAL_TLS_CLIENT_KEY_PATH: ", "private key does not match"},
		},
		{
			env{"TEMPORAL_TLS_CLIENT_CERT_DATA": canary, "TEMPORAL_TLS_CLIENT_KEY_DATA": canary},
			[]string{"TEMPORAL_TLS_CLIENT_CERT_DATA, TEMPORAL_TLS_CLIENT_KEY_DATA: "},
		},
		{env{"TEMPORAL_TLS": "true", "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "true"}, []string{"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION: "}},
		{env{"TEMPORAL_API_KEY_FILE": "/does/not/exist"}, []string{"TEMPORAL_API_KEY_FILE: ", "no such file"}},
		{env{"TEMPORAL_API_KEY_FILE": file("\n")}, []string{"TEMPORAL_API_KEY_FILE: ", "must hold the key alone"}},
		{env{"TEMPORAL_API_KEY_FILE": file(canary + "\n" + canary)}, []string{"must hold the key alone"}},
		{env{"TEMPORAL_API_KEY_FILE": file(strings.Repeat(canary, 3000))}, []string{"has more than 16384 bytes"}},
		{env{"TEMPORAL_API_KEY_FILE": file("k"), "TEMPORAL_API_KEY": canary}, []string{"TEMPORAL_API_KEY_FILE: is set together with TEMPORAL_API_KEY"}},
		{env{"TEMPORAL_PROFILE": "missing"}, []string{"settings of Temporal: ", "missing"}},
	} {
		_, err := load(t, test.env)
		for _, want := range test.want {
			require.ErrorContains(t, err, want)
		}
		require.NotContains(t, err.Error(), canary)
	}
}

// An API key in a file is read again. Until the new one can be used, the old one is; the log has neither.
func TestAPIKeyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
		write("canary-1\n")
		var log bytes.Buffer
		read := temporalconn.KeyFile(path, slog.New(slog.NewTextHandler(&log, nil)))
		pass := func() { <-time.After(temporalconn.KeyFresh) }
		expect := func(want string) {
			key, err := read()
			require.NoError(t, err)
			require.Equal(t, want, key)
		}
		expect("canary-1")
		write("canary-2\n")
		expect("canary-1")
		pass()
		expect("canary-2")
		write("canary-3 and more")
		pass()
		expect("canary-2")
		require.Contains(t, log.String(), "cannot be read again")
		require.NoError(t, os.Remove(path))
		pass()
		expect("canary-2")
		write("canary-4")
		pass()
		expect("canary-4")
		require.NotContains(t, log.String(), canary)
	})
}

// service is as much of Temporal as says which key came.
type service struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu   sync.Mutex
	keys []string
}

func (s *service) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, incoming.Get("authorization")...)
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (s *service) came() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

// startService returns a server without TLS.
func startService(t *testing.T) (*service, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &service{}
	temporalconntest.Serve(t, l, s)
	return s, l.Addr().String()
}

// ask calls the server by the SDK once, over a new connection.
func ask(t *testing.T, o client.Options) error {
	t.Helper()
	o.Logger = quiet{}
	c, err := client.NewLazyClient(o)
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// The SDK connects with the client's certificate and the key; both change while the options are in use.
func TestConnectsAndReadsFilesAgain(t *testing.T) {
	t.Parallel()
	s, backend := startService(t)
	first, second := temporalconntest.NewAuthority(t), temporalconntest.NewAuthority(t)
	files := temporalconntest.NewFiles(t)
	files.Write(first)
	files.WriteClient(t, first.Issue("client", time.Hour))
	proxy := temporalconntest.StartProxy(t, backend, first.Issue("127.0.0.1", time.Hour), first.Pool())
	o, err := load(t, env{
		"TEMPORAL_ADDRESS": proxy.Address(), "TEMPORAL_TLS_SERVER_CA_CERT_PATH": files.CA, "TEMPORAL_API_KEY": "a-key",
		"TEMPORAL_TLS_CLIENT_CERT_PATH": files.Cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": files.Key,
	})
	require.NoError(t, err)
	require.NoError(t, ask(t, o))
	require.NoError(t, temporalconn.Check(t.Context(), o))
	require.Contains(t, s.came(), "Bearer a-key")
	require.WithinDuration(t, time.Now().Add(time.Hour), temporalconn.ValidUntil(o), time.Minute)

	proxy.Use(second.Issue("127.0.0.1", time.Hour), second.Pool())
	require.ErrorContains(t, temporalconn.Check(t.Context(), o), "TEMPORAL_TLS_SERVER_CA_CERT_PATH: the server's certificate is not of an authority")
	files.Write(second)
	require.ErrorContains(t, temporalconn.Check(t.Context(), o), "TEMPORAL_TLS_CLIENT_CERT_PATH: the server refuses the certificate")
	files.WriteClient(t, second.Issue("client", 2*time.Hour))
	require.NoError(t, temporalconn.Check(t.Context(), o))
	require.NoError(t, ask(t, o))

	// Files that cannot be used leave what is in use.
	require.NoError(t, os.WriteFile(files.CA, []byte(canary), 0o600))
	require.NoError(t, os.WriteFile(files.Cert, []byte(canary), 0o600))
	require.NoError(t, ask(t, o))
}

func TestCheckNamesTheSetting(t *testing.T) {
	t.Parallel()
	_, backend := startService(t)
	ours, others := temporalconntest.NewAuthority(t), temporalconntest.NewAuthority(t)
	files := temporalconntest.NewFiles(t)
	files.Write(ours)
	valid := ours.Issue("client", time.Hour)
	for _, test := range []struct {
		name   string
		server tls.Certificate
		client *tls.Certificate
		env    env
		want   string
	}{
		{"all valid", ours.Issue("127.0.0.1", time.Hour), &valid, nil, ""},
		{"by name", ours.Issue("temporal.example.com", time.Hour), &valid, env{"TEMPORAL_TLS_SERVER_NAME": "temporal.example.com"}, ""},
		{"another name", ours.Issue("temporal.example.com", time.Hour), &valid, nil, "TEMPORAL_TLS_SERVER_NAME: the server's certificate is for another name"},
		{"another authority", others.Issue("127.0.0.1", time.Hour), &valid, nil, "TEMPORAL_TLS_SERVER_CA_CERT_PATH: the server's certificate is not of"},
		{"an expired server", ours.Issue("127.0.0.1", -time.Hour), &valid, nil, "TEMPORAL_ADDRESS: the server's certificate has expired"},
		{"no client's certificate", ours.Issue("127.0.0.1", time.Hour), nil, nil, "TEMPORAL_TLS_CLIENT_CERT_PATH: is not set, and the server wants"},
		{
			"an expired client", ours.Issue("127.0.0.1", time.Hour), new(ours.Issue("client", -time.Hour)), nil,
			"TEMPORAL_TLS_CLIENT_CERT_PATH: the certificate has expired on ",
		},
		{
			"a client of another authority", ours.Issue("127.0.0.1", time.Hour), new(others.Issue("client", time.Hour)), nil,
			"TEMPORAL_TLS_CLIENT_CERT_PATH: the server refuses the certificate: ",
		},
		{"plain text", ours.Issue("127.0.0.1", time.Hour), &valid, env{"TEMPORAL_ADDRESS": backend}, "TEMPORAL_TLS: the server does not speak TLS"},
		{"nobody", ours.Issue("127.0.0.1", time.Hour), &valid, env{"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "TEMPORAL_ADDRESS: dial tcp 127.0.0.1:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			proxy := temporalconntest.StartProxy(t, backend, test.server, ours.Pool())
			all := env{"TEMPORAL_ADDRESS": proxy.Address(), "TEMPORAL_TLS_SERVER_CA_CERT_PATH": files.CA}
			if test.client != nil {
				own := temporalconntest.NewFiles(t)
				own.WriteClient(t, *test.client)
				all["TEMPORAL_TLS_CLIENT_CERT_PATH"], all["TEMPORAL_TLS_CLIENT_KEY_PATH"] = own.Cert, own.Key
			}
			maps.Copy(all, test.env)
			o, err := load(t, all)
			require.NoError(t, err)
			err = temporalconn.Check(t.Context(), o)
			if test.want == "" {
				require.NoError(t, err)
				require.NoError(t, ask(t, o))
				return
			}
			require.ErrorContains(t, err, test.want)
			if test.name != "nobody" {
				require.Error(t, ask(t, o))
			}
		})
	}
}

package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/temporalconn/temporalconntest"
)

// Temporal as a service: TLS with certificates of the server and of the client. Every command uses them, doctor says what is wrong
// with them, and a running process reads them again when they are replaced.
func TestTemporalWithTLS(t *testing.T) {
	t.Parallel()
	authority, other := temporalconntest.NewAuthority(t), temporalconntest.NewAuthority(t)
	files := temporalconntest.NewFiles(t)
	files.Write(authority)
	files.WriteClient(t, authority.Issue("everpost", time.Hour))
	proxy := temporalconntest.StartProxy(t, sharedTemporal(t), authority.Issue("temporal.example.com", time.Hour), authority.Pool())
	namespace := newNamespace("tls")
	secured := settings{
		"TEMPORAL_ADDRESS": proxy.Address(), "TEMPORAL_NAMESPACE": namespace, "TEMPORAL_API_KEY": "canary-of-a-key",
		"TEMPORAL_TLS_SERVER_CA_CERT_PATH": files.CA, "TEMPORAL_TLS_SERVER_NAME": "temporal.example.com",
	}.With(clientFiles(files))
	f, err := runToEnd(contextFor(t, patience), secured, "setup-temporal")
	require.NoError(t, err)
	require.Zero(t, f.Code, f.Stderr)
	in := cluster(t, proxy.Address(), namespace, secured)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	deliver := func() {
		t.Helper()
		_, d := b.postOne("tls", `{}`)
		b.waitState(d.ID, "delivered")
	}
	deliver()

	found, _ := doctor(t, in.env)
	require.Equal(t, "ok", found["temporal"].Verdict, found["temporal"].Detail)
	require.Contains(t, found["temporal"].Detail, " with TLS, namespace "+namespace)
	require.Contains(t, found["temporal"].Detail, "the client's certificate is valid until ")
	require.Equal(t, "ok", found["workers"].Verdict, found["workers"].Detail)

	wrong, expired := temporalconntest.NewFiles(t), temporalconntest.NewFiles(t)
	wrong.Write(other)
	wrong.WriteClient(t, other.Issue("everpost", time.Hour))
	expired.WriteClient(t, authority.Issue("everpost", -time.Hour))
	for _, test := range []struct {
		env    settings
		detail string
	}{
		{settings{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": wrong.CA}, "TEMPORAL_TLS_SERVER_CA_CERT_PATH: the server's certificate is not of an authority"},
		{settings{"TEMPORAL_TLS_SERVER_NAME": "other.example.com"}, "TEMPORAL_TLS_SERVER_NAME: the server's certificate is for another name"},
		{settings{"TEMPORAL_TLS_CLIENT_CERT_PATH": "", "TEMPORAL_TLS_CLIENT_KEY_PATH": ""}, "TEMPORAL_TLS_CLIENT_CERT_PATH: is not set"},
		{clientFiles(wrong), "TEMPORAL_TLS_CLIENT_CERT_PATH: the server refuses the certificate"},
		{clientFiles(expired), "TEMPORAL_TLS_CLIENT_CERT_PATH: the certificate has expired on "},
	} {
		found, f := doctor(t, in.env.With(test.env))
		require.Equal(t, "problem", found["temporal"].Verdict)
		require.Contains(t, found["temporal"].Detail, "no answer from Temporal at "+proxy.Address()+": "+test.detail)
		require.NotContains(t, f.Stdout+f.Stderr, "canary")
	}
	missing, f := doctor(t, in.env.With(settings{"TEMPORAL_TLS_CLIENT_KEY_PATH": "/does/not/exist"}))
	require.Equal(t, 1, f.Code)
	require.Contains(t, missing["settings"].Detail, "TEMPORAL_TLS_CLIENT_KEY_PATH: ")

	// All certificates are replaced, and the running process goes on with the new ones.
	before := proxy.Admitted()
	files.Write(other)
	files.WriteClient(t, other.Issue("everpost", time.Hour))
	proxy.Use(other.Issue("temporal.example.com", time.Hour), other.Pool())
	proxy.Cut()
	deliver()
	require.Greater(t, proxy.Admitted(), before)
	require.NotContains(t, in.tail(0), "canary")
	require.NoError(t, in.process.Terminate())
}

func clientFiles(f temporalconntest.Files) settings {
	return settings{"TEMPORAL_TLS_CLIENT_CERT_PATH": f.Cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": f.Key}
}

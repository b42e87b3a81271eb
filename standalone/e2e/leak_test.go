package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/everpost/everpost/internal/receivertest"
)

// TestCanaries plants a marker wherever a user's secret may be, lets deliveries
// succeed, fail in several ways, die and come back, and finds none of the markers in
// the log, the metrics, the histories of the workflows or what their pages show.
func TestCanaries(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	random := base64.StdEncoding.EncodeToString([]byte("canary-secret-0123456789abcdefgh")) // 24 to 64 bytes
	markers := map[string]string{
		"secret": random, "payload": "canarypayload7391", "url": "canaryurltoken5527", "path": "canarypathtoken6607", "header": "canaryheader8164",
		"password": "canarypassword4410", "bearer token": "canarybearer6038", "client secret": "canaryclient2279",
		"issued token": "canaryissued9152", "token URL": "canarytokenurl3384",
		"event header": "canaryeventheader1406", "tag": "canarytag8835",
	}
	certificate, private := clientCertificate(t)
	markers["key"] = private
	tokens := receivertest.New(t)
	tokens.Default(receivertest.Step{
		Header: map[string]string{"Content-Type": "application/json"}, Body: `{"access_token":"` + markers["issued token"] + `","expires_in":3600}`,
	})
	// Its error quotes the request, as some servers do.
	echoed := markers["client secret"] + markers["token URL"]
	tokens.Script("/token", receivertest.Step{Status: 503, Body: echoed, Header: map[string]string{"X-Echo": echoed}})
	tokenClient := fieldsOf{
		"type": "oauth2_client_credentials", "token_url": tokens.URL() + "/token?key=" + markers["token URL"],
		"client_id": "shop", "client_secret": markers["client secret"],
	}
	bearer := fieldsOf{"type": "bearer", "token": markers["bearer token"]}
	target := func(path, url string, auth, certificate fieldsOf) endpoint {
		return b.endpoint(r, path, fieldsOf{
			"url": url + path, "secret": "whsec_" + random, "headers": fieldsOf{"X-Api-Key": markers["header"]}, "event_types": []string{"c" + path[1:6]},
			"auth": auth, "client_certificate": certificate,
		})
	}
	query := "?token=" + markers["url"]
	alive := target("/alive"+query, r.URL(), fieldsOf{"type": "basic", "username": "shop", "password": markers["password"]}, nil)
	target("/retry"+query, r.URL(), bearer, nil)
	target("/perma/"+markers["path"]+query, r.URL(), fieldsOf{"type": "basic", "username": "shop", "password": markers["password"]}, nil)
	target("/drops"+query, r.URL(), tokenClient, nil)
	target("/slows"+query, r.URL(), nil, nil)
	target("/nones"+query, "http://127.0.0.1:1", bearer, nil) // nothing listens there
	target("/certs"+query, strings.Replace(r.URL(), "http:", "https:", 1), nil, certificate)
	b.ask(http.StatusOK, http.MethodPatch, "/endpoints/"+alive.ID, fieldsOf{"auth": fieldsOf{
		"type": "basic", "username": "shop", "password": markers["password"],
	}, "description": "changed"}, nil)
	echo := strings.Join([]string{
		"refused", markers["payload"], markers["header"], markers["password"], markers["bearer token"], markers["issued token"],
	}, " ")
	r.Script("/retry", receivertest.Step{Status: 500, Body: echo + query, Header: map[string]string{"X-Echo": markers["header"]}})
	perma := "/perma/" + markers["path"]
	r.Script(perma, receivertest.Step{Status: 308, Body: echo, Header: map[string]string{"Location": r.URL() + perma + "/" + query}})
	r.Script("/drops", receivertest.Step{Drop: true}, receivertest.Step{Raw: echo})
	r.Script("/slows", receivertest.Step{Delay: 1500 * 1e6})
	payload := `{"marker":"` + markers["payload"] + `"}`
	kinds := map[string]string{
		"calive": "delivered", "cretry": "delivered", "cperma": "dead_lettered", "cdrops": "delivered", "cslows": "delivered", "cnones": "dead_lettered",
		"ccerts": "dead_lettered",
	}
	workflows := map[string]string{} // to the event's id
	for kind, state := range kinds {
		e, d := b.postOne(kind, payload, "headers", `{"X-Event":"`+markers["event header"]+`"}`, "tags", `["`+markers["tag"]+`"]`)
		d = b.waitState(d.ID, state)
		if kind == "cperma" {
			b.command(http.StatusAccepted, d.ID, "replay", nil)
			d = b.waitState(d.ID, "delivered")
		}
		workflows[d.WorkflowID] = e.ID
		// A key that may read attempts may not read the endpoint's secrets.
		attempts := b.ask(http.StatusOK, http.MethodGet, "/deliveries/"+d.ID+"/attempts", nil, nil)
		requireNoMarker(t, "the attempts of "+kind, string(attempts.body), credentialsAmong(markers, kind))
	}
	require.Equal(t, markers["event header"], r.Requests()[0].Header.Get("X-Event"))
	// The API, too, has something to say about what is wrong with a request.
	b.ask(http.StatusBadRequest, http.MethodPost, "/events", `{"type":"a","payload":"`+markers["payload"]+`\u00"}`, nil)

	ctx, engine := contextFor(t, patience), b.in.temporal(t)
	log, err := os.ReadFile(b.in.logPath)
	require.NoError(t, err)
	requireNoMarker(t, "the log", string(log), markers)
	metrics, err := (&apiClient{base: b.in.addr["admin"], http: http.DefaultClient}).call(ctx, http.MethodGet, "/metrics", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, metrics.status)
	requireNoMarker(t, "the metrics", string(metrics.body), markers)
	audit, err := b.in.client().call(ctx, http.MethodGet, "/v1/audit?tenant="+b.tenant, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, audit.status)
	require.Contains(t, string(audit.body), "endpoint.update", "the search finds what is there")
	requireNoMarker(t, "the audit log", string(audit.body), markers)
	for id, eventID := range workflows {
		histories := historiesOf(ctx, t, engine, id)
		require.Contains(t, histories, eventID, "the search finds what is there")
		requireNoMarker(t, "the history of "+id, histories, markers)
		described, err := engine.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: b.in.namespace, Execution: execution(id),
		})
		require.NoError(t, err)
		requireNoMarker(t, "the page of "+id, legible(t, described), markers)
	}
	// They did go where they belong.
	request := r.Requests()[0]
	require.Equal(t, payload, string(request.Body))
	require.Equal(t, markers["header"], request.Header.Get("X-Api-Key"))
	sent := map[string]bool{}
	for _, request := range r.Requests() {
		sent[request.Header.Get("Authorization")] = true
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("shop:"+markers["password"]))
	for _, authorization := range []string{basic, "Bearer " + markers["bearer token"], "Bearer " + markers["issued token"]} {
		require.True(t, sent[authorization], authorization)
	}
	require.Equal(t, 2, tokens.Count())
	require.Contains(t, tokens.Requests()[0].Path, markers["token URL"])
}

// credentialsAmong are the markers that may be nowhere in the attempts of a kind of event:
// its receiver repeats the payload, and whatever else was not sent to it.
func credentialsAmong(markers map[string]string, kind string) map[string]string {
	of := map[string][]string{
		"cretry": {"bearer token"}, "cperma": {"password"}, "cdrops": {"issued token"},
	}[kind]
	some := map[string]string{}
	for _, name := range append(of, "secret", "url", "path", "header", "client secret", "token URL", "key") {
		some[name] = markers[name]
	}
	return some
}

// clientCertificate is one as the API takes it, with a piece of the key's text to look for.
func clientCertificate(t *testing.T) (fields fieldsOf, marker string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return fieldsOf{
		"certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), "key": text,
	}, strings.Split(text, "\n")[1][10:40] // its first 36 bytes tell only of which kind it is
}

// historiesOf is the text of all runs of a workflow id that are still known.
func historiesOf(ctx context.Context, t *testing.T, engine client.Client, id string) string {
	t.Helper()
	var all strings.Builder
	runs := 0
	eventually(ctx, t, func() string { // the list of runs follows a moment later
		found, err := engine.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + id + "'"})
		require.NoError(t, err)
		all.Reset()
		runs = len(found.GetExecutions())
		for _, e := range found.GetExecutions() {
			events := engine.GetWorkflowHistory(ctx, id, e.GetExecution().GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for events.HasNext() {
				event, err := events.Next()
				require.NoError(t, err)
				all.WriteString(legible(t, event))
			}
		}
		if runs == 0 {
			return "no run of " + id + " is listed"
		}
		return ""
	})
	return all.String()
}

// legible is a message as JSON, and once more as it is on the wire: JSON would hide
// what is in its byte fields behind base64.
func legible(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	wire, err := proto.Marshal(m)
	require.NoError(t, err)
	return string(text) + "\n" + string(wire) + "\n"
}

// requireNoMarker finds the markers also where they are encoded once more.
func requireNoMarker(t *testing.T, place, text string, markers map[string]string) {
	t.Helper()
	for name, marker := range markers {
		for _, spelling := range spellings(marker) {
			if at := strings.Index(text, spelling); at >= 0 {
				require.Failf(t, "a marker leaked", "%s holds the %s marker: …%q…", place, name, text[max(0, at-200):min(len(text), at+200)])
			}
		}
	}
}

// spellings are a text as it is, in hex, and in base64 at each of the three places
// in a group where it may begin, without what depends on its neighbours.
func spellings(s string) []string {
	all := []string{s, hex.EncodeToString([]byte(s))}
	for shift := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", shift) + s))
		all = append(all, encoded[(8*shift+5)/6:len(encoded)-2])
	}
	return all
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "x", "xy", "xyz"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(before + "canarypayload7391" + "after"))
		found := 0
		for _, spelling := range spellings("canarypayload7391") {
			if strings.Contains(encoded, spelling) {
				found++
			}
		}
		require.Equal(t, 1, found, "%q", before)
	}
}

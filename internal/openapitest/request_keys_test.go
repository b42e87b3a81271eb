package openapitest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/openapitest"
)

const keyHeader = "Idempotency-Key"

// takesKey reports whether the document names the header for an operation.
func takesKey(o openapitest.Operation) bool {
	d := document()
	names, _ := d.In(o, "parameters").([]any)
	for _, p := range names {
		if d.Of(p, "name") == keyHeader {
			return true
		}
	}
	return false
}

// Every POST of the document is carried out once for a key, by whichever process, or refuses the header. No other operation takes it.
func TestEveryPostIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	processes := []*world{w, w.another()}
	kept := 0
	for _, o := range document().Operations() {
		if !strings.HasPrefix(o.Path, "/v1/") {
			continue
		}
		id := ""
		switch {
		case strings.Contains(o.Path, "{id}"):
			id = w.make(own, o)
		case strings.Contains(o.Path, "{name}"):
			id = w.eventType()
		}
		path, body := strings.NewReplacer("{tenant}", own, "{id}", id, "{name}", id).Replace(o.Path), ""
		if o.Method != http.MethodGet {
			body = w.body(o, own)
		}
		if !takesKey(o) {
			require.Contains(t, w.ok(http.StatusBadRequest, "operator", o.Method, path, body, keyHeader, "k").text, keyHeader, o.ID)
			continue
		}
		require.Equal(t, http.MethodPost, o.Method)
		kept++
		requireOnce(t, processes, o.ID, path, body)
	}
	require.Greater(t, kept, 20)
}

// requireOnce sends a request many times at once and then again, with the same key and with others.
func requireOnce(t *testing.T, processes []*world, name, path, body string) {
	t.Helper()
	w := processes[0]
	before := w.changes()
	answers := make([]answer, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			answers[i] = processes[i%len(processes)].do("operator", "POST", path, body, keyHeader, "once "+name)
		})
	}
	all.Wait()
	first, fresh := "", 0
	for _, a := range answers {
		if a.status == http.StatusConflict {
			require.Contains(t, a.text, "under way", name)
			continue
		}
		require.Less(t, a.status, 300, "%s: %s", name, a.text)
		if a.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
		if first == "" {
			first = a.text
		}
		require.Equal(t, first, a.text, "%s: all have the same answer", name)
	}
	require.Equal(t, 1, fresh, "%s: one of them is new", name)
	require.LessOrEqual(t, w.changes(), before+1, "%s is carried out once", name)

	for _, p := range processes {
		again := p.do("operator", "POST", path, body, keyHeader, "once "+name)
		require.Equal(t, [2]string{"true", first}, [2]string{again.header.Get("Idempotent-Replayed"), again.text}, name)
		require.Equal(t, http.StatusUnprocessableEntity, p.do("operator", "POST", path, body+" ", keyHeader, "once "+name).status, name)
	}
}

// changes is the number of requests that have changed something.
func (w *world) changes() (n int) {
	w.Helper()
	require.NoError(w, w.store.Pool().QueryRow(w.Context(), `select count(distinct request_id) from audit_log`).Scan(&n))
	return n
}

func (w *world) count(what string) (n int) {
	w.Helper()
	require.NoError(w, w.store.Pool().QueryRow(w.Context(), `select count(*) from `+what).Scan(&n))
	return n
}

// A key belongs to the API key, tenant and path. A request that was refused can be repeated, and what may not be done is refused first.
func TestScopeOfAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := `{"url":"` + w.hook + `"}`
	first := w.ok(http.StatusCreated, "admin", "POST", acme+"/endpoints", body, keyHeader, "k").field(t, "id")
	for _, other := range [][2]string{{"operator", acme}, {"operator", "/v1/tenants/" + foreign}} {
		require.NotEqual(t, first, w.ok(http.StatusCreated, other[0], "POST", other[1]+"/endpoints", body, keyHeader, "k").field(t, "id"))
	}
	w.ok(http.StatusOK, "admin", "POST", acme+"/endpoints/"+first+"/rotate-secret", "", keyHeader, "k")
	w.ok(http.StatusForbidden, "ingest", "POST", acme+"/endpoints", body, keyHeader, "k")
	w.ok(http.StatusUnauthorized, "none", "POST", acme+"/endpoints", body, keyHeader, "k")

	w.ok(http.StatusBadRequest, "admin", "POST", acme+"/endpoints", `{}`, keyHeader, "mended")
	w.ok(http.StatusCreated, "admin", "POST", acme+"/endpoints", body, keyHeader, "mended")
	w.ok(http.StatusCreated, "admin", "POST", acme+"/keys", `{"scope":"ingest"}`, keyHeader, "k")
	w.ok(http.StatusUnprocessableEntity, "admin", "POST", acme+"/keys", `{"scope":"admin"}`, keyHeader, "k")
	require.Equal(t, 4, w.count(`endpoints`))
}

// While a request is in progress, another one with its key is refused at once.
func TestIdempotencyKeyUnderWay(t *testing.T) {
	t.Parallel()
	w := setup(t)
	conn, err := pgx.Connect(t.Context(), w.address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `begin; select from tenants where id = 'acme' for update`)
	require.NoError(t, err)

	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			answers <- w.do("admin", "POST", acme+"/endpoints", `{"url":"`+w.hook+`"}`, keyHeader, "k")
		}()
	}
	refused := <-answers
	require.Equal(t, http.StatusConflict, refused.status, refused.text)
	require.Contains(t, refused.text, "is under way")
	_, err = conn.Exec(t.Context(), `rollback`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, (<-answers).status)
	require.Equal(t, 1, w.count("endpoints"))
}

// Answers with a secret are encrypted, and given for 15 minutes; the others are given for a day. Then the key is free.
func TestKeptAnswersEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	age := func(by time.Duration) {
		_, err := w.store.Pool().Exec(t.Context(), `update request_keys set created_at = now() - $1::bigint * interval '1 ms'`, by.Milliseconds())
		require.NoError(t, err)
	}
	id := w.endpoint(own)
	requests := []struct{ path, body, id string }{
		{acme + "/keys", `{"scope":"ingest"}`, "key_"},
		{acme + "/endpoints", `{"url":"` + w.hook + `"}`, "ep_"},
		{acme + "/endpoints/" + id + "/rotate-secret", ``, id},
		{acme + "/console-links", `{"scope":"view"}`, "lnk_"},
		{"/v1/tenants/other/console-links", `{"kind":"token","scope":"view"}`, "lnk_"},
		{"/v1/console-links", ``, "lnk_"},
	}
	for _, r := range requests {
		first := w.do("operator", "POST", r.path, r.body, keyHeader, "k")
		require.Less(t, first.status, 300, first.text)
	}
	require.Zero(t, w.count(`request_keys where kek_id is null or position('evk_' in encode(answer, 'escape')) > 0
		or position('evp_' in encode(answer, 'escape')) > 0 or position('whsec_' in encode(answer, 'escape')) > 0
		or position('console/links' in encode(answer, 'escape')) > 0`))
	plain := w.ok(http.StatusOK, "operator", "POST", acme+"/endpoints/"+id+"/pause", "", keyHeader, "k").text

	age(14 * time.Minute)
	for _, r := range requests {
		require.Equal(t, "true", w.do("operator", "POST", r.path, r.body, keyHeader, "k").header.Get("Idempotent-Replayed"), r.path)
	}
	age(16 * time.Minute)
	for _, r := range requests {
		gone := w.ok(http.StatusConflict, "operator", "POST", r.path, r.body, keyHeader, "k")
		require.Equal(t, "https://everpost.dev/errors/already-created", gone.field(t, "type"), r.path)
		require.Contains(t, gone.field(t, "id"), r.id)
		w.ok(http.StatusUnprocessableEntity, "operator", "POST", r.path, "{}", keyHeader, "k")
	}
	age(24*time.Hour - time.Minute)
	require.Equal(t, plain, w.ok(http.StatusOK, "operator", "POST", acme+"/endpoints/"+id+"/pause", "", keyHeader, "k").text)
	age(24*time.Hour + time.Minute)
	for _, r := range requests { // not pruned yet
		if r.body != "" { // with another body
			r.body = strings.Replace(r.body+" ", "ingest", "admin", 1)
		}
		again := w.do("operator", "POST", r.path, r.body, keyHeader, "k")
		require.Less(t, again.status, 300, fmt.Sprint(r.path, again.text))
		require.Empty(t, again.header.Get("Idempotent-Replayed"))
	}
}

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func operate(t *testing.T, b *bundle, w *window, _ bool) {
	t.Helper()
	made := b.tenant + "x"
	w.expect(http.StatusBadRequest)
	w.show("/tenants", http.StatusOK)
	w.fill("id", "not an id")
	w.pressButton("Create")
	require.Contains(t, w.text(), "must be 1 to 64 of")
	w.fill("id", made)
	w.fill("name", "Made by hand")
	w.pressButton("Create")
	require.Contains(t, w.text(), "The tenant has been created.")
	w.fill("requests_per_second", "2.5")
	w.fill("endpoints", "many")
	w.pressButton("Save")
	require.Contains(t, w.text(), "must be a whole number")
	w.fill("endpoints", "7")
	w.fill("retry_policy.preset", "fast")
	w.pressButton("Save")
	require.Contains(t, w.text(), "The tenant has been changed.")
	of := &bundle{t: t, in: b.in, client: b.client, tenant: made}
	var stored struct {
		Name   string
		Limits struct {
			Requests  float64 `json:"requests_per_second"`
			Endpoints int
		}
		Policy struct{ Preset string } `json:"retry_policy"`
	}
	of.ask(http.StatusOK, http.MethodGet, "", nil, &stored)
	require.Equal(t, []any{"Made by hand", 2.5, 7, "fast"}, []any{stored.Name, stored.Limits.Requests, stored.Limits.Endpoints, stored.Policy.Preset})

	w.show(of.below("keys"), http.StatusOK)
	w.fill("name", "shop")
	w.expect(http.StatusCreated)
	w.pressButton("Create")
	key := strings.TrimSpace(evaluate[string](w, `document.getElementById("new-key").textContent`))
	require.Regexp(t, `^evk_[0-9a-z]{85}$`, key)
	shop := &bundle{t: t, in: b.in, client: &apiClient{base: b.client.base, key: key, http: b.client.http}, tenant: made}
	require.Zero(t, shop.post("order.paid", `{}`).Matched, "the key works")
	w.show(of.below("keys"), http.StatusOK)
	require.NotContains(t, w.text(), key, "it is shown once")
	w.pressButton("Revoke")
	require.Contains(t, w.text(), "Revoke the key key_")
	w.pressButton("Revoke")
	require.Contains(t, w.text(), "The key has been revoked.")
	eventually(contextFor(t, patience), t, func() string {
		got, err := shop.client.call(t.Context(), http.MethodGet, shop.path("/events"), nil)
		require.NoError(t, err)
		if got.status == http.StatusUnauthorized {
			return ""
		}
		return "the key still works"
	})

	w.show("/audit?tenant="+made, http.StatusOK)
	for _, said := range []string{"tenant.create", "tenant.update", "key.create", "key.revoke", "127.0.0.1"} {
		require.Contains(t, w.text(), said)
	}
	w.show("/doctor", http.StatusOK)
	for _, said := range []string{"database", "schema", "temporal", "backlog", "made by this process"} {
		require.Contains(t, w.text(), said)
	}
	require.Contains(t, w.text(), "No problem", "a test's installation has no problem")
	w.show("/tenants/"+made+"/delete", http.StatusOK)
	w.pressButton("Delete the tenant")
	require.Contains(t, w.text(), "The tenant has been deleted.")
}

func logInAndOut(t *testing.T, browser *browsers) {
	t.Helper()
	b := setup(t)
	w := browser.open(t, b.in)
	w.show(b.below("endpoints"), http.StatusOK)
	require.Contains(t, w.path(), "/login", "without a session")
	w.expect(http.StatusUnauthorized)
	w.fill("key", "evk_wrong")
	w.pressButton("Log in")
	require.Contains(t, w.text(), "not an API key")
	w.fill("key", b.in.key)
	w.pressButton("Log in")
	require.Equal(t, b.below("endpoints"), w.path(), "it leads to the page that was asked for")
	require.NotContains(t, evaluate[string](w, `document.cookie`), "everpost", "scripts cannot read the session")
	w.press(`//header//button[normalize-space()="Log out"]`)
	w.show(b.below("endpoints"), http.StatusOK)
	require.Contains(t, w.path(), "/login")
}

func lookElsewhere(t *testing.T, browser *browsers) {
	t.Helper()
	b, other := setup(t), setup(t)
	r := newReceiver(t)
	ep := other.endpoint(r, "/other", nil)
	e, d := other.postOne("order.paid", `{}`)
	_, key := b.key("admin")
	w := browser.open(t, b.in)
	w.as(b.in, key)
	for _, path := range []string{
		other.below(), other.below("deliveries", d.ID), b.below("deliveries", d.ID), b.below("events", e.ID), b.below("endpoints", ep.ID),
		b.below("endpoints", ep.ID, "pause"), b.below("replays", "rpl_0"), b.below("dead-letters", "x"), "/tenants", "/nowhere",
	} {
		w.show(path, http.StatusNotFound)
	}
	w.show(b.below("search")+"?q="+d.ID, http.StatusOK)
	require.Contains(t, w.text(), "No delivery has the id")
	w.show(b.below("search")+"?q=tenant:"+other.tenant, http.StatusOK)
	require.Contains(t, w.text(), "is not a tenant that you can see")
}

func forgeForm(t *testing.T, browser *browsers) {
	t.Helper()
	b := setup(t)
	ep := b.endpoint(newReceiver(t), "/hook", nil)
	w := browser.open(t, b.in)
	w.as(b.in, b.in.key)
	w.show(b.below("endpoints", ep.ID, "pause"), http.StatusOK)
	require.NoError(t, chromedp.Do(w.ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector("main [name=csrf]").value = "forged"`)))
	w.expect(http.StatusForbidden)
	w.pressButton("Pause")
	require.Contains(t, w.text(), "was not sent from a page of this console")
	var now endpoint
	b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+ep.ID, nil, &now)
	require.EqualValues(t, "active", now.State)
}

package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// ofManyTenants is an operator's page of an installation with n tenants, in pages of 100; block: the list of them never answers.
func ofManyTenants(t *testing.T, n int, block bool) *page {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/search", http.NoBody)
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if block {
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		from := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
		answer := client.Page[client.Tenant]{}
		for i := from; i < min(from+100, n); i++ {
			answer.Data = append(answer.Data, client.Tenant{ID: fmt.Sprintf("t%d", i)})
		}
		if from+100 < n {
			answer.NextCursor = strconv.Itoa(from + 100)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	p := &page{r: r, api: localAPI{handler: list, from: r}}
	p.session.Access, p.session.key.Scope = webhook.AccessKey, webhook.ScopeOperator
	return p
}

// A look into tenants ends with their number or with its time, and says so; a look that was cut off does not count.
func TestLookInTenantsIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		tenants, most, blocksAt int
		blockList, all          bool
		looked                  int
	}{
		{name: "all", tenants: 120, most: 120, blocksAt: -1, looked: 120, all: true},
		{name: "too many", tenants: 121, most: 120, blocksAt: -1, looked: 120},
		{name: "one does not answer", tenants: 120, most: 1000, blocksAt: 30, looked: 30},
		{name: "the list does not answer", tenants: 120, most: 1000, blocksAt: -1, blockList: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				looked, all, err := lookInTenants(ofManyTenants(t, c.tenants, c.blockList), c.most, func(ctx context.Context, _ string) (bool, error) {
					if asked == c.blocksAt {
						<-ctx.Done()
						return false, ctx.Err()
					}
					asked++
					return false, nil
				})
				require.NoError(t, err)
				require.Equal(t, c.looked, looked)
				require.Equal(t, c.all, all)
			})
		})
	}
}

// Whether an id was looked for everywhere decides what can be said of it.
func TestMissingSaysWhatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	templates, err := parseTemplates(nil)
	require.NoError(t, err)
	v := searchView{Text: "evt_1", Missing: "evt_1", Kind: "event", Searched: 7}
	shown := func() string {
		content, err := fill(templates, "search", templateData{Page: pageInfo{}, Data: v})
		require.NoError(t, err)
		return string(content)
	}
	require.Contains(t, shown(), "There are tenants that were not looked at.")
	v.All = true
	require.Contains(t, shown(), "It was never stored here")
}

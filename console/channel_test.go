package console

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// A stored channel that is refused, such as a mail channel without a mail server, is named: the form does not show it.
func TestARefusedChannelIsNamed(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/t/acme/notifications/new", http.NoBody)
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errors":[{"field":"channels[0].kind","message":"is not possible"},{"field":"channels[1].on[0]","message":"is unknown"},
			{"field":"channels","message":"has more than 20 entries"}]}`))
	})
	p := &page{r: r, tenant: "acme", api: localAPI{handler: refuse, from: r}}
	err := channelsAt(p).put(p, []client.NotificationChannelInput{{Kind: "email", Target: "ops@example.com"}, {Kind: "slack"}}, "", 1)
	f, err := newForm("on", "").refused(nil, err)
	require.NoError(t, err)
	require.Equal(t, "is unknown", f.Error("on"))
	require.Equal(t, "The channel email ops@example.com: is not possible. channels has more than 20 entries. ", f.Problem)
}

package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// An endpoint has one name, wherever it is named.
func TestWhatAnEndpointIsCalled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ description, url, want string }{
		{"Orders\nof the shop", "https://shop.example/hook", "Orders"},
		{"", "https://shop.example/hook", "shop.example/hook"},
		{" \nsecond line", "https://shop.example/hook", "shop.example/hook"},
		{"", "", "ep_1"},
	} {
		names := endpointNames{urls: map[string]string{"ep_1": c.url}, said: map[string]string{"ep_1": c.description}}
		require.Equal(t, c.want, names.Short("ep_1"))
		if c.url != "" {
			require.Equal(t, c.want, nameOf(client.Endpoint{Description: c.description, URL: c.url}))
			require.Equal(t, c.want, shortName(c.description, c.url))
		}
	}
}

package webhook_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestValidTag(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"a", "7", "eu-west-1", "order:17", "a/b.c_d", "-", "NULL", strings.Repeat("x", 64)} {
		require.True(t, webhook.ValidTag(tag), tag)
	}
	for _, tag := range []string{"", " ", "a b", "a,b", `a"b`, "a{b}", `a\\b`, "ä", "a\x00", "a\n", strings.Repeat("x", 65)} {
		require.False(t, webhook.ValidTag(tag), "%q", tag)
	}
}

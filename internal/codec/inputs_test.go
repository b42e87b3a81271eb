package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/internal/vault"
)

type input struct{ Text string }

// An input in plain is refused; one that a process with a key has made, a signal and a result are not.
func TestSealedInputs(t *testing.T) {
	t.Parallel()
	plain := converter.GetDefaultDataConverter()
	sealed := SealedInputs(converter.NewCodecDataConverter(plain, New(vault.New(newKEK(t)), true)), input{}, []input{})
	for _, value := range []any{input{"a"}, []input{{"a"}}} {
		byHand, err := plain.ToPayloads(value)
		require.NoError(t, err)
		own, err := sealed.ToPayloads(value)
		require.NoError(t, err)
		one, many := input{}, []input{}
		into := any(&one)
		if _, several := value.([]input); several {
			into = &many
		}
		require.ErrorIs(t, sealed.FromPayloads(byHand, into), ErrPlainInput)
		require.ErrorIs(t, sealed.FromPayload(byHand.GetPayloads()[0], into), ErrPlainInput)
		require.Zero(t, one)
		require.Empty(t, many)
		require.NoError(t, sealed.FromPayloads(own, into))
		require.NoError(t, sealed.FromPayload(own.GetPayloads()[0], into))
	}

	signal, err := plain.ToPayloads("by hand")
	require.NoError(t, err)
	var text string
	require.NoError(t, sealed.FromPayloads(signal, &text))
	require.Equal(t, "by hand", text)
	var raw converter.RawValue
	require.NoError(t, sealed.FromPayloads(signal, &raw))
	require.NoError(t, sealed.FromPayloads(nil, &input{}), "no input is an empty one")
}

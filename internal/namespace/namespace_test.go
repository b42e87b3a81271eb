package namespace

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Ensure and Inspect are tested against a server in standalone/internal/temporald and standalone/e2e.

// The names and types are those of running installations, so they must not change.
func TestWorkflowAttributes(t *testing.T) {
	t.Parallel()
	require.Equal(t, Attributes{
		"TenantId": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "EndpointId": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "EventType": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"EventId": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "DeliveryState": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"EventIds": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	}, WorkflowAttributes())
}

func TestMissingAttributes(t *testing.T) {
	t.Parallel()
	const keyword, number = enumspb.INDEXED_VALUE_TYPE_KEYWORD, enumspb.INDEXED_VALUE_TYPE_INT
	want := Attributes{"A": keyword, "B": keyword}
	for name, test := range map[string]struct {
		has  Attributes
		want []string
		err  string
	}{
		"none exists":          {nil, []string{"A", "B"}, ""},
		"one exists":           {Attributes{"B": keyword, "C": number}, []string{"A"}, ""},
		"all exist":            {Attributes{"A": keyword, "B": keyword}, nil, ""},
		"one has another type": {Attributes{"B": number}, nil, "search attribute B: the namespace has it as Int, not Keyword"},
	} {
		missing, err := want.missing(test.has)
		if test.err != "" {
			require.EqualError(t, err, test.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.want, missing.names(), name)
	}
}

// A connection of gRPC returns a status, a client of the SDK an error of Temporal.
func TestTemporaryErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{status.Error(codes.Unavailable, "starting"), true},
		{status.Error(codes.DeadlineExceeded, "slow"), true},
		{status.Error(codes.ResourceExhausted, "busy"), true},
		{fmt.Errorf("call: %w", serviceerror.NewUnavailable("starting")), true},
		{status.Error(codes.PermissionDenied, "no"), false},
		{status.Error(codes.InvalidArgument, "what"), false},
		{serviceerror.NewNotFound("nothing"), false},
		{errors.New("other"), false},
	} {
		require.Equal(t, test.want, isTemporary(test.err), "%v", test.err)
	}
}

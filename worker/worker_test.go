package worker_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/worker"
	"github.com/everpost/everpost/workflows"
)

// registry records the names of the registered functions.
type registry struct{ workflows, activities []string }

func (r *registry) RegisterWorkflow(w any) { r.workflows = append(r.workflows, name(w)) }
func (r *registry) RegisterActivity(a any) { r.activities = append(r.activities, name(a)) }

// name returns Temporal's name of a function.
func name(function any) string {
	full := runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name()
	return strings.TrimSuffix(full[strings.LastIndexByte(full, '.')+1:], "-fm")
}

// notActivities are the exported methods of the parts of Activities that no workflow calls.
func notActivities() []string {
	return []string{"SendEagerly", "KnowsEndpoint", "ReadEndpoint", "SentAt", "CheckEndpoint", "Running", "Stop"}
}

func TestEverythingIsRegistered(t *testing.T) {
	t.Parallel()
	var r registry
	a := activities.New(activities.Config{})
	worker.Register(&r, a)

	require.ElementsMatch(t, []string{
		"DeliveryWorkflow", "DeadLetterWorkflow", "ReplayWorkflow", "TenantDeletionWorkflow", "ProbeWorkflow",
	}, r.workflows)

	var expected []string
	for part := range reflect.TypeFor[activities.Activities]().Fields() {
		for method := range part.Type.Methods() {
			expected = append(expected, method.Name)
		}
	}
	require.ElementsMatch(t, expected, append(r.activities, notActivities()...))
}

// Histories of running workflows contain these names, so they must not change.
func TestNamesAreTheContract(t *testing.T) {
	t.Parallel()
	require.Equal(t, "DeliveryWorkflow", name(workflows.DeliveryWorkflow))
	require.Equal(t, "DeadLetterWorkflow", name(workflows.DeadLetterWorkflow))
	require.Equal(t, "ReplayWorkflow", name(workflows.ReplayWorkflow))
	require.Equal(t, "TenantDeletionWorkflow", name(workflows.TenantDeletionWorkflow))
	require.Equal(t, workflows.ProbeName, name(workflows.ProbeWorkflow))
	require.Equal(t, "everpost", workflows.TaskQueue)
}

// Inputs names the type of every input but texts, contexts and none.
func TestInputs(t *testing.T) {
	t.Parallel()
	named := map[reflect.Type]bool{}
	for _, value := range worker.Inputs() {
		named[reflect.TypeOf(value)] = true
	}
	wanted := map[reflect.Type]bool{}
	r := &typesOf{}
	worker.Register(r, &activities.Activities{})
	for _, function := range *r {
		for i := 1; i < function.NumIn(); i++ { // the first is the context
			if in := function.In(i); in.Kind() != reflect.String {
				wanted[in] = true
			}
		}
	}
	require.Equal(t, wanted, named)
}

// typesOf has the types of what is registered.
type typesOf []reflect.Type

func (r *typesOf) RegisterWorkflow(w any) { *r = append(*r, reflect.TypeOf(w)) }
func (r *typesOf) RegisterActivity(a any) { *r = append(*r, reflect.TypeOf(a)) }

package workflows

import "go.temporal.io/sdk/workflow"

// ProbeName is the name of ProbeWorkflow.
const ProbeName = "ProbeWorkflow"

// ProbeWorkflow does nothing. That it could be started says that Temporal can be written to,
// after a call that was late or had failed.
func ProbeWorkflow(workflow.Context) error { return nil }

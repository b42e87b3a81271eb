package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxOutput bounds a result: its text and its structured content together, as JSON.
	maxOutput = 32 << 10

	// Entries in a list.
	maxEntries     = 20
	defaultEntries = 10
)

// tool describes a tool.
type tool struct {
	name        string
	title       string
	description string
	hints       hints
}

// hints say what a call may do, for clients that decide by it whether to ask.
type hints struct {
	writes      bool
	destructive bool // it stops something, or sends many requests
	idempotent  bool // a second call changes nothing more
	sends       bool // receivers get requests because of it
}

func (t tool) definition(schema *jsonschema.Schema) *mcp.Tool {
	return &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description, InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: !t.hints.writes, DestructiveHint: &t.hints.destructive,
			IdempotentHint: t.hints.idempotent || !t.hints.writes, OpenWorldHint: &t.hints.sends,
		},
	}
}

// add adds a tool. run returns the result in words and as an object.
//
// A tool that changes something has a plan, which says what a call would do and changes nothing. A client that can ask its
// user (elicitation) is made to. Any other has to call twice: the first call is refused, and names what expect has to be.
func add[In scoped, Out any](
	s *Server, t tool, plan func(context.Context, *call, In) (intent, error), run func(context.Context, *call, In) (string, Out, error),
) {
	t.hints.writes = plan != nil
	mcp.AddTool(s.mcp, t.definition(schemaOf[In](s.tenant != "")),
		func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			var none Out
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			c, end, err := s.begin(ctx, req, in.tenantID())
			if err != nil {
				return nil, none, err
			}
			defer end()
			if plan != nil {
				planned, err := plan(ctx, c, in)
				if err != nil {
					return nil, none, c.toolError(ctx, err)
				}
				ask, err := s.confirm(req, c, in, planned)
				if err != nil || ask != nil {
					return ask, none, err
				}
			}
			text, out, err := run(ctx, c, in)
			if err != nil {
				return nil, none, c.toolError(ctx, err)
			}
			return bounded(text, out)
		})
}

// schemaOf returns the schema of a tool's arguments. If the server has one tenant only, none can be named;
// else one has to be.
func schemaOf[In any](oneTenant bool) *jsonschema.Schema {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // the types of arguments are fixed: the first start of any server would show it
	}
	if oneTenant {
		delete(schema.Properties, "tenant")
		schema.PropertyOrder = slices.DeleteFunc(schema.PropertyOrder, func(name string) bool { return name == "tenant" })
	} else {
		schema.Required = append([]string{"tenant"}, schema.Required...)
	}
	if limit := schema.Properties["limit"]; limit != nil {
		limit.Minimum, limit.Maximum = new(1.0), new(float64(maxEntries))
	}
	if states := schema.Properties["state"]; states != nil && states.Items != nil {
		states.Items.Enum = []any{"pending", "retrying", "held", "delivered", "dead_lettered", "cancelled", "discarded"}
	}
	return schema
}

// paging limits a list.
type paging struct {
	Limit  int    `json:"limit,omitempty" jsonschema:"The maximum of entries, 10 if absent; newest first."`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before."`
}

// entries is how many entries a page has at most.
func (p paging) entries() int {
	if p.Limit == 0 {
		return defaultEntries
	}
	return p.Limit
}

// fit calls render with n, n/2, n/4, … 1, until the result is not larger than a result may be.
func fit[Out any](n int, render func(n int) (string, Out, error)) (string, Out, error) {
	for {
		text, out, err := render(n)
		if n <= 1 || err != nil || sizeOf(text, out) <= maxOutput {
			return text, out, err
		}
		n /= 2
	}
}

// sizeOf is the size of a result as JSON.
func sizeOf(text string, out any) int {
	words, err := json.Marshal(text)
	if err != nil {
		return maxOutput + 1
	}
	object, err := json.Marshal(out)
	if err != nil {
		return maxOutput + 1
	}
	return len(words) + len(object)
}

// bounded returns a result, or an error if it is too large all the same.
func bounded[Out any](text string, out Out) (*mcp.CallToolResult, Out, error) {
	if sizeOf(text, out) > maxOutput {
		var none Out
		return nil, none, errors.New("the result is too large; narrow the filters")
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, out, nil
}

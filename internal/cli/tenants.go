package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// TenantsCommand manages tenants. It needs an operator's key.
type TenantsCommand struct {
	List   TenantsListCommand   `cmd:"" help:"List tenants."`
	Get    TenantsGetCommand    `aliases:"show" cmd:"" help:"Show a tenant."`
	Create TenantsCreateCommand `cmd:"" help:"Create a tenant."`
	Update TenantsUpdateCommand `aliases:"change" cmd:"" help:"Change the given settings of a tenant."`
	Export TenantsExportCommand `cmd:"" help:"Write everything of a tenant to standard output, a JSON object per line."`
	Delete TenantsDeleteCommand `cmd:"" help:"Delete a tenant."`
}

// TenantsListCommand lists tenants.
type TenantsListCommand struct {
	connection `embed:""`
	paging     `embed:""`

	Prefix string `help:"Only those whose id begins with it." placeholder:"TEXT"`
}

// Run lists them.
func (c *TenantsListCommand) Run(ctx context.Context, p Process) error {
	r := request{path: []string{"tenants"}, query: queryOf(map[string]string{"prefix": c.Prefix}), ofAll: true}
	return listOf(ctx, p, c, "tenants", r, c.paging, []column[client.Tenant]{
		{"ID", func(t client.Tenant) string { return t.ID }},
		{"NAME", func(t client.Tenant) string { return printable.OrDash(t.Name) }},
		{"CONTACT", func(t client.Tenant) string { return text(t.Contact) }},
		{"CREATED", func(t client.Tenant) string { return optionalTime(t.CreatedAt) }},
	})
}

// oneTenant holds the arguments of a command for one tenant.
type oneTenant struct {
	connection `embed:""`

	ID string `arg:"" help:"The tenant's id: 1 to 64 of A-Z, a-z, 0-9, _ and -."`
}

// open is connection.open with the tenant.
func (c *oneTenant) open(p Process) (*session, error) {
	if c.ID == "" {
		return nil, usage("<id>: is empty; it is the tenant's id")
	}
	s, err := c.connection.open(p)
	if err == nil {
		s.tenant = c.ID
	}
	return s, err
}

// record makes a request about the tenant and prints the response.
func (c *oneTenant) record(ctx context.Context, p Process, method string, body []byte) error {
	return with(p, c, func(s *session) error { return s.record(ctx, request{method: method, body: body}) })
}

// TenantsGetCommand shows a tenant.
type TenantsGetCommand struct {
	oneTenant `embed:""`
}

// Run shows it.
func (c *TenantsGetCommand) Run(ctx context.Context, p Process) error {
	return c.record(ctx, p, http.MethodGet, nil)
}

// tenantFields are the settings of a tenant. Fields without a flag go into Data, and so
// does null, which resets a field to its default.
type tenantFields struct {
	Name        *string           `help:"A name for people." placeholder:"TEXT"`
	Contact     *string           `help:"Contact for problems; operational events contain it." placeholder:"TEXT"`
	Metadata    map[string]string `help:"Metadata, as name=value; may be repeated. Replaces all metadata." mapsep:"none" placeholder:"NAME=VALUE"`
	RetryPolicy *string           `help:"Policy of endpoints that have none of their own: a preset's name, or JSON." placeholder:"POLICY"`
	Payloads    *string           `help:"Keep payloads for so long after their deliveries ended, or null: as long as the installation." name:"retention-payloads" placeholder:"DURATION"` //nolint:lll // a struct tag cannot be wrapped
	Attempts    *string           `help:"Keep attempts for so long after their delivery ended, or null." name:"retention-attempts" placeholder:"DURATION"`
	Deliveries  *string           `help:"Keep ended deliveries, and their events, for so long, or null." name:"retention-deliveries" placeholder:"DURATION"`
	Data        source            `help:"Any settings as the API takes them, such as limits: a JSON object, @file, or - for standard input. Flags override its fields." placeholder:"JSON"` //nolint:lll // a struct tag cannot be wrapped
}

// body returns the settings in the API's format: Data, overridden by the flags.
func (f *tenantFields) body(p Process) ([]byte, error) {
	fields, err := f.Data.object(p, "--data")
	if err != nil {
		return nil, err
	}
	set(fields, "name", f.Name)
	set(fields, "contact", f.Contact)
	if f.Metadata != nil {
		fields["metadata"] = marshal(f.Metadata)
	}
	retention := map[string]json.RawMessage{}
	for name, kept := range map[string]*string{"payloads": f.Payloads, "attempts": f.Attempts, "deliveries": f.Deliveries} {
		if kept != nil && *kept == "null" {
			retention[name] = []byte("null")
		} else {
			set(retention, name, kept)
		}
	}
	if len(retention) > 0 {
		fields["retention"] = marshal(retention)
	}
	if err := setPolicy(fields, f.RetryPolicy); err != nil {
		return nil, err
	}
	return marshal(fields), nil
}

// TenantsCreateCommand creates a tenant.
type TenantsCreateCommand struct {
	oneTenant    `embed:""`
	tenantFields `embed:""`
}

// Run creates the tenant unless it exists: PUT would replace it.
func (c *TenantsCreateCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p)
	if err != nil {
		return err
	}
	return with(p, c, func(s *session) error {
		_, err := s.do(ctx, request{method: http.MethodGet})
		if err == nil {
			return &apiError{http.StatusConflict, "there is a tenant " + printable.Text(c.ID) + " already; 'everpost tenants update' changes it"}
		}
		if missing, ok := errors.AsType[*apiError](err); !ok || missing.status != http.StatusNotFound {
			return err
		}
		return s.record(ctx, request{method: http.MethodPut, body: body})
	})
}

// TenantsUpdateCommand updates a tenant.
type TenantsUpdateCommand struct {
	oneTenant    `embed:""`
	tenantFields `embed:""`
}

// Run updates it.
func (c *TenantsUpdateCommand) Run(ctx context.Context, p Process) error {
	body, err := c.body(p)
	if err != nil {
		return err
	}
	if string(body) == "{}" {
		return usage("tenants update: say what is to change; 'everpost tenants update --help' lists it")
	}
	return c.record(ctx, p, http.MethodPatch, body)
}

// TenantsExportCommand exports a tenant.
type TenantsExportCommand struct {
	oneTenant `embed:""`
}

// Run exports it.
func (c *TenantsExportCommand) Run(ctx context.Context, p Process) error {
	return with(p, c, func(s *session) error {
		return s.understood(ctx, request{}, s.api.Tenant(s.tenant).Export(ctx, p.Stdout))
	})
}

// TenantsDeleteCommand deletes a tenant.
type TenantsDeleteCommand struct {
	oneTenant `embed:""`

	Everything bool `help:"Delete its endpoints, too, and remove everything that is stored of it, permanently."`
}

// Run deletes it.
func (c *TenantsDeleteCommand) Run(ctx context.Context, p Process) error {
	if c.Everything {
		return with(p, c, func(s *session) error {
			return s.record(ctx, request{method: http.MethodDelete, query: queryOf(map[string]string{"everything": "true"})})
		})
	}
	return removed(ctx, p, c, request{method: http.MethodDelete}, printable.Text(c.ID))
}

package audit_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/openapitest"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// Fields are named in the audit log as the API names them.
func TestChangedFieldsHaveTheNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "api", "openapi.yaml"))
	require.NoError(t, err)
	document, err := openapitest.Parse(text)
	require.NoError(t, err)
	for schema, fields := range map[string]reflect.Type{
		"EndpointShape": reflect.TypeFor[webhook.Endpoint](), "Tenant": reflect.TypeFor[webhook.Tenant](), "Limits": reflect.TypeFor[webhook.Limits](),
	} {
		known := document.At("components", "schemas", schema, "properties").(map[string]any)
		for field := range fields.Fields() {
			if field.Name != "Version" && field.Name != "Inherited" && field.Name != "Internal" { // nothing changes them alone
				require.Contains(t, known, audit.APIName(field.Name), field.Name)
			}
		}
	}
}

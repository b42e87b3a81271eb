package console

// The pages that are added in files of their own; each function names its routes.

func searchRoutes() []route     { return nil }
func deadLetterRoutes() []route { return nil }
func replayRoutes() []route     { return nil }
func policyRoutes() []route     { return nil }
func tenantRoutes() []route     { return nil }
func keyRoutes() []route        { return nil }
func auditRoutes() []route      { return nil }
func doctorRoutes() []route     { return nil }

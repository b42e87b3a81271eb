package console

func overviewRoutes() []route     { return nil }
func endpointRoutes() []route     { return nil }
func endpointFormRoutes() []route { return nil }
func eventRoutes() []route        { return nil }
func deliveryRoutes() []route     { return nil }

func overviewOfAll(p *page) error { return errNotFound() }

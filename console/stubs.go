package console

func endpointRoutes() []route     { return nil }
func endpointFormRoutes() []route { return nil }
func eventRoutes() []route        { return nil }
func deliveryRoutes() []route     { return nil }

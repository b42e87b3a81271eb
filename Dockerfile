# Two images from one file:
#   docker build --target everpost .     the cluster binary: api, worker, serve, migrate …, against a given PostgreSQL and Temporal
#   docker build --target standalone .   everything in one process tree, with a PostgreSQL of its own

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS builder
WORKDIR /src
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
ARG VERSION=dev
# Set by the builder; compiling for another architecture needs no emulation.
ARG TARGETOS
ARG TARGETARCH

FROM builder AS build-everpost
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/everpost ./cmd/everpost

FROM builder AS build-standalone
COPY standalone/go.mod standalone/go.sum ./standalone/
RUN --mount=type=cache,target=/go/pkg/mod cd standalone && go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    cd standalone && GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/everpost .

# The binaries are static. Roots are for TLS to receivers, curl is for health checks.
FROM debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171 AS runtime
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 everpost \
    && useradd --uid 10001 --gid everpost --home-dir /var/lib/everpost --create-home --shell /usr/sbin/nologin everpost

FROM runtime AS standalone
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15/main
COPY --from=build-standalone /out/everpost /usr/local/bin/everpost
# Its PostgreSQL runs as this user too: the database refuses root, and nothing here needs it.
USER 10001:10001
WORKDIR /var/lib/everpost
# In a container the outside is what -p publishes; bind that to 127.0.0.1 unless others are meant to reach it. Only the API
# listens beyond loopback.
ENV EVERPOST_DATA_DIR=/var/lib/everpost/data \
    EVERPOST_LISTEN=0.0.0.0:8080
VOLUME /var/lib/everpost
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["curl", "-fsS", "http://127.0.0.1:8081/readyz"]
ENTRYPOINT ["everpost"]
CMD ["standalone"]

# Last, so that it is what a build without --target makes.
FROM runtime AS everpost
COPY --from=build-everpost /out/everpost /usr/local/bin/everpost
USER 10001:10001
WORKDIR /var/lib/everpost
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["everpost"]
CMD ["serve"]

# `docker build -t redquorum .` builds the command from this source. A release stops at the stage "release":
# its context has the binaries that are in the archives, too.
FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /redquorum ./cmd/redquorum

# It has certificates of the well-known authorities, for rediss://, and no shell.
FROM gcr.io/distroless/static-debian13:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3 AS base
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/redquorum"]

FROM base AS release
ARG TARGETPLATFORM
COPY LICENSE .pages/THIRD-PARTY-LICENSES /usr/share/doc/redquorum/
COPY $TARGETPLATFORM/redquorum /usr/local/bin/redquorum

FROM base
COPY --from=build /redquorum /usr/local/bin/redquorum

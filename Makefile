# keyjanitor: run make without a target to see what there is.

VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -s -w -X main.version=$(VERSION)
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
KUSTOMIZE   := go run sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
VALIDATE    := go run sigs.k8s.io/kubectl-validate@v0.0.4 --version 1.30

.PHONY: help test deps check integration golden manifests vuln bench build image

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: deps check integration ## install what the tests need, then run every check and test

deps: ## install redis-server and a C compiler (Debian), or say what to install
	@.ci/deps

check: ## gofmt, vet, staticcheck and unit tests; needs no server
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...
	go test -race $$(go list ./... | grep -v /integration)

integration: ## the suite against real servers: redis-server, valkey-server, KEYJANITOR_TEST_SERVERS
	go test -count=1 -timeout 13m ./integration/...

golden: ## rewrite the expected outputs of tests; look at the difference before you commit it
	go test $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update

manifests: ## build deploy/base and check it against Kubernetes' own schemas
	@mkdir -p bin
	$(KUSTOMIZE) build deploy/base >bin/manifests.yaml
	$(VALIDATE) bin/manifests.yaml

vuln: ## look for known vulnerabilities in what the program calls
	$(GOVULNCHECK) ./...

bench: ## measure side by side with redis-cli and plain loops; go run ./bench -only removal does more
	go run ./bench

build: ## a static binary, bin/keyjanitor
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/keyjanitor ./cmd/keyjanitor

image: ## the container image, keyjanitor:VERSION
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) -t keyjanitor:$(VERSION) .

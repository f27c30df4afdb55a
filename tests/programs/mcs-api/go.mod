module mcs-agent.invalid/tests/programs/mcs-api

go 1.26.0

tool mcs-agent.invalid/tests/programs/mcs-api

require sigs.k8s.io/mcs-api v0.5.2

"""The tests of llmgw, and what they need: a lab of real hosts, fakes of neighbours, cases."""

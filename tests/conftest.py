"""What all tests share."""

pytest_plugins = ("tests.lab.fixtures", "tests.case_files", "tests.fabric_command")

# Copyright llmgw developers. Apache-2.0.
"""A module that does not write its arguments to the host's log."""

from ansible.module_utils.basic import AnsibleModule


class QuietModule(AnsibleModule):
    """Ansible writes a module's arguments to syslog, with the values of no_log options masked. It looks for them as
    they stand; in the printed form of a list of dictionaries a text with quotes or line ends stands otherwise."""

    def _log_invocation(self):
        pass

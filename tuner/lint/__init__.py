"""What is wrong with a dashboard or a rules file, before somebody trusts it at night.

`files` finds the queries, `checks` judges each (dead metrics, rates, quantiles, units, averages,
windows), `catalogue` knows which names exist. Pure but for `catalogue.of_url`.
"""

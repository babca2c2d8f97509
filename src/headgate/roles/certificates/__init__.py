"""Certificates about roles and records of other domains: does this one count, here and now (OASIS 4.2, 4.10)?"""

"""Records -> one report: HTML that stands alone, Markdown, and figures as PDF. No torch here."""

from genaccel.report.html import render_report as render_report
from genaccel.report.html import write_report as write_report
from genaccel.report.results import COLUMNS as COLUMNS
from genaccel.report.results import summary_row as summary_row
